"""llama.cpp's own HTTP server out of the PyPI package xllamacpp, started with llama-server's flags.

    python -m bench.engines.embedded --model FILE --port N [llama-server flags of our presets]
    python -m bench.engines.embedded --describe

It takes the flags that `Arm.flags()` makes and no others. A flag or a value that the package cannot do is an error
that names the flag (exit code 2), never ignored. The log goes to stdout and stderr as llama-server's does. SIGTERM and
SIGINT end it at once, during the load too. `--describe` prints what the package can do, as JSON.
"""

from __future__ import annotations

import ipaddress
import json
import signal
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NoReturn

KV_TYPES = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_1", "iq4_nl", "q5_0", "q5_1")
"""Cache types that llama-server takes."""

_UNSUPPORTED = {"--override-kv": "xllamacpp has no parameter for metadata overrides; use a llama-server (--server)"}


class FlagError(Exception):
    """A flag or its value cannot be done; the message names the flag."""


def _whole(flag: str, text: str, low: int = 0) -> int:
    try:
        value = int(text)
    except ValueError:
        value = low - 1
    if value < low:
        raise FlagError(f"unknown value for {flag}: expected a whole number from {low}, found {text!r}")
    return value


def _number(flag: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise FlagError(f"unknown value for {flag}: expected a number, found {text!r}") from None


def _one_of(flag: str, text: str, known: Sequence[str]) -> str:
    if text not in known:
        raise FlagError(f"unknown value for {flag}: expected one of {', '.join(known)}, found {text!r}")
    return text


class _Flags:
    """Puts flags into xllamacpp's parameters. One method for a flag that is more than an assignment."""

    def __init__(self, xllamacpp: Any) -> None:
        self.x = xllamacpp
        self.params = xllamacpp.CommonParams()
        self.params.ui = False
        config = xllamacpp.common_params_sampling_config
        p, s = self.params, self.params.sampling
        self.table: dict[str, Callable[[str, str], None]] = {
            "--model": lambda _, v: setattr(p.model, "path", v),
            "--host": self._host,
            "--port": lambda f, v: setattr(p, "port", _whole(f, v)),
            "--alias": lambda _, v: setattr(p, "model_alias", {v}),
            "--ctx-size": lambda f, v: setattr(p, "n_ctx", _whole(f, v)),
            "--n-gpu-layers": self._gpu_layers,
            "--cache-type-k": lambda f, v: setattr(p, "cache_type_k", self._kv_type(f, v)),
            "--cache-type-v": lambda f, v: setattr(p, "cache_type_v", self._kv_type(f, v)),
            "--flash-attn": self._flash,
            "--threads": lambda f, v: setattr(p.cpuparams, "n_threads", _whole(f, v, 1)),
            "--threads-batch": lambda f, v: setattr(p.cpuparams_batch, "n_threads", _whole(f, v, 1)),
            "--parallel": lambda f, v: setattr(p, "n_parallel", _whole(f, v, 1)),
            "--fit": lambda f, v: setattr(p, "fit_params", _one_of(f, v, ("on", "off")) == "on"),
            "--cache-ram": lambda f, v: setattr(p, "cache_ram_mib", _whole(f, v, -1)),
            "--verbosity": lambda f, v: setattr(p, "verbosity", _whole(f, v, -1)),
            "--temp": self._sampling(s, "temp", config.COMMON_PARAMS_SAMPLING_CONFIG_TEMP),
            "--top-p": self._sampling(s, "top_p", config.COMMON_PARAMS_SAMPLING_CONFIG_TOP_P),
            "--top-k": self._sampling(s, "top_k", config.COMMON_PARAMS_SAMPLING_CONFIG_TOP_K, whole=True),
            "--min-p": self._sampling(s, "min_p", config.COMMON_PARAMS_SAMPLING_CONFIG_MIN_P),
            "--presence-penalty": self._sampling(s, "penalty_present", 0),
            "--frequency-penalty": self._sampling(s, "penalty_freq", 0),
            "--repeat-penalty": self._sampling(
                s, "penalty_repeat", config.COMMON_PARAMS_SAMPLING_CONFIG_PENALTY_REPEAT
            ),
            "--spec-type": self._spec_type,
            "--spec-draft-n-max": lambda f, v: setattr(p.speculative.draft, "n_max", _whole(f, v, 1)),
            "--chat-template-kwargs": self._template_kwargs,
        }

    def read(self, argv: Sequence[str]) -> Any:
        """The parameters for these flags; raises FlagError."""
        seen: set[str] = set()
        rest = list(argv)
        while rest:
            flag = rest.pop(0)
            if flag in _UNSUPPORTED:
                raise FlagError(f"unsupported flag {flag}: {_UNSUPPORTED[flag]}")
            if flag == "--jinja":
                self.params.use_jinja = True
                continue
            if flag not in self.table:
                raise FlagError(f"unsupported flag {flag}: the embedded engine takes {', '.join(self.table)}, --jinja")
            if not rest:
                raise FlagError(f"unknown value for {flag}: expected one, found none")
            if flag in seen:
                raise FlagError(f"unknown value for {flag}: expected it once, found it again")
            seen.add(flag)
            self.table[flag](flag, rest.pop(0))
        for flag in ("--model", "--port"):
            if flag not in seen:
                raise FlagError(f"unknown value for {flag}: it is needed")
        return self.params

    def _sampling(self, into: Any, name: str, bit: int, whole: bool = False) -> Callable[[str, str], None]:
        """A sampler default. The bit says that it was asked for, so that the model file's own does not replace it."""

        def put(flag: str, text: str) -> None:
            setattr(into, name, _whole(flag, text) if whole else _number(flag, text))
            into.user_sampling_config |= int(bit)

        return put

    def _host(self, flag: str, text: str) -> None:
        try:
            loopback = ipaddress.ip_address(text).is_loopback
        except ValueError:
            loopback = False
        if not loopback:
            raise FlagError(f"unknown value for {flag}: expected a loopback address, found {text!r}")
        self.params.hostnames = [text]

    def _gpu_layers(self, flag: str, text: str) -> None:
        layers = {"auto": -1, "all": -2}.get(text)
        layers = _whole(flag, text) if layers is None else layers
        if layers != 0 and not gpus(self.x):
            raise FlagError(f"unsupported flag {flag} {text}: this xllamacpp has no GPU to put layers on")
        self.params.n_gpu_layers = layers

    def _kv_type(self, flag: str, text: str) -> Any:
        return self.x.ggml_type[f"GGML_TYPE_{_one_of(flag, text, KV_TYPES).upper()}"]

    def _flash(self, flag: str, text: str) -> None:
        names = {"on": "ENABLED", "off": "DISABLED", "auto": "AUTO"}
        name = names[_one_of(flag, text, tuple(names))]
        self.params.flash_attn_type = self.x.llama_flash_attn_type[f"LLAMA_FLASH_ATTN_TYPE_{name}"]

    def _spec_type(self, flag: str, text: str) -> None:
        known = spec_types(self.x)
        types = [_one_of(flag, one, tuple(known)) for one in text.split(",")]
        self.params.speculative.types = [known[one] for one in types]
        if "draft-mtp" in types:
            self.params.load_mtp = True

    def _template_kwargs(self, flag: str, text: str) -> None:
        try:
            parsed = json.loads(text)
        except ValueError:
            parsed = None
        if not isinstance(parsed, dict):
            raise FlagError(f"unknown value for {flag}: expected a JSON object, found {text!r}")
        self.params.default_template_kwargs = {key: json.dumps(value) for key, value in parsed.items()}


def spec_types(xllamacpp: Any) -> dict[str, Any]:
    """Speculative types that the package knows, by llama-server's name (`draft-mtp`, `ngram-mod`, ...)."""
    prefix = "COMMON_SPECULATIVE_TYPE_"
    return {
        member.name.removeprefix(prefix).lower().replace("_", "-"): member
        for member in xllamacpp.common_speculative_type
        if member.name != prefix + "COUNT"
    }


def gpus(xllamacpp: Any) -> list[str]:
    """Names of the GPUs that the package can use."""
    gpu = "GPU"  # GGML_BACKEND_DEVICE_TYPE_GPU and _IGPU
    return [str(one["name"]) for one in xllamacpp.get_device_info() if one["type"].name.endswith(gpu)]


def describe(xllamacpp: Any) -> dict[str, Any]:
    """What the package can do."""
    return {
        "version": xllamacpp.__version__,
        "build_info": f"b{xllamacpp.BUILD_INFO['build_number']}-{xllamacpp.BUILD_INFO['commit']}",
        "gpus": gpus(xllamacpp),
        "spec_types": list(spec_types(xllamacpp)),
        "kv_types": list(KV_TYPES),
        "unsupported": sorted(_UNSUPPORTED),
        "library": sys.modules["xllamacpp.xllamacpp"].__file__,
    }


def _fail(text: str, code: int) -> NoReturn:
    sys.stderr.write(f"error: {text}\n")
    sys.exit(code)


def main(argv: Sequence[str]) -> None:
    """Serve until a signal ends the process."""
    # Python's own handlers cannot run while the model loads in native code; the default ones need no handler.
    for sig in (signal.SIGTERM, signal.SIGINT):
        signal.signal(sig, signal.SIG_DFL)
    try:
        import xllamacpp
    except ImportError as error:
        _fail(f"cannot execute the embedded engine: {error}", 127)
    if list(argv) == ["--describe"]:
        sys.stdout.write(json.dumps(describe(xllamacpp)) + "\n")
        return
    try:
        params = _Flags(xllamacpp).read(argv)
    except FlagError as error:
        _fail(str(error), 2)
    if not Path(params.model.path).is_file():
        _fail(f"failed to open GGUF file '{params.model.path}' (No such file or directory)", 1)
    try:
        server = xllamacpp.Server(params)
    except RuntimeError as error:  # the native log has said why
        _fail(str(error), 1)
    while server is not None:
        time.sleep(3600)


if __name__ == "__main__":
    main(sys.argv[1:])
