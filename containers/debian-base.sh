#!/bin/sh
# Make a Debian base image from the distribution's own packages, for machines that cannot pull images.
#
#   containers/debian-base.sh TAG [PACKAGE...]
#
# Needs root, debootstrap and a running Docker engine. Does nothing when TAG was already made from the same suite and
# packages (FORCE=1 makes it again). The mirror is the one this machine's apt uses for the suite, else debootstrap's
# own default; MIRROR and SUITE (default: this machine's Debian release, else bookworm) overrule both.
set -eu

if [ "$#" -lt 1 ]; then
    echo "usage: debian-base.sh TAG [PACKAGE...]: expected an image tag, found no argument" >&2
    exit 2
fi
tag=$1
shift
docker=${DOCKER:-docker}
label=org.gguf-bench.base

release_of_host() {
    # shellcheck disable=SC1091
    . /etc/os-release
    [ "${ID:-}" = debian ] && echo "${VERSION_CODENAME:-}"
}
suite=${SUITE:-$(release_of_host || true)}
suite=${suite:-bookworm}

command -v debootstrap >/dev/null || {
    echo "debian-base.sh: expected debootstrap, found none: apt-get install debootstrap" >&2
    exit 1
}
"$docker" version >/dev/null 2>&1 || {
    echo "debian-base.sh: expected a running Docker engine, found none: start it, or set DOCKER_HOST" >&2
    exit 1
}

# What the image is made of, in an order that does not depend on how it was typed.
wanted=$(printf '%s\n' "$@" | sort -u | tr '\n' ' ' | sed 's/^ *//; s/ *$//')
recipe="$suite minbase $wanted"
have=$("$docker" image inspect --format "{{index .Config.Labels \"$label\"}}" "$tag" 2>/dev/null || true)
if [ "${FORCE:-0}" != 1 ] && [ "$have" = "$recipe" ]; then
    echo "$tag: up to date"
    exit 0
fi

mirror_of_apt() {
    command -v apt-get >/dev/null || return 0
    # shellcheck disable=SC2016
    apt-get indextargets --format '$(REPO_URI)' "Codename: $suite" "Component: main" "Created-By: Packages" 2>/dev/null |
        sed -n '1s|/*$||p'
}
mirror=${MIRROR:-$(mirror_of_apt)}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT INT TERM
set -- --variant=minbase
[ -n "$wanted" ] && set -- "$@" "--include=$(echo "$wanted" | tr ' ' ',')"
set -- "$@" "$suite" "$work/root"
[ -n "$mirror" ] && set -- "$@" "$mirror"
debootstrap "$@" >"$work/log" 2>&1 || {
    tail -n 20 "$work/log" "$work/root/debootstrap/debootstrap.log" >&2 2>/dev/null || true
    echo "debian-base.sh: debootstrap failed; the last lines of its log are above" >&2
    exit 1
}

# Package archives and lists are of no use inside, and device nodes cannot be imported by rootless engines.
rm -rf "$work"/root/var/cache/apt/archives/*.deb "$work"/root/var/lib/apt/lists/* \
    "$work"/root/usr/share/doc/* "$work"/root/usr/share/man/* "$work"/root/usr/share/locale/*
tar -C "$work/root" --numeric-owner --exclude=./dev/* --exclude=./proc/* --exclude=./sys/* -cf - . |
    "$docker" import --change "LABEL $label=\"$recipe\"" --change 'CMD ["/bin/sh"]' - "$tag" >/dev/null
echo "$tag: made ($recipe)"
