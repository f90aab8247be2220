# Sourced by the scripts beside it: a virtual environment in .venv with one of the package's extras installed.

say() { printf '%s\n' "$*" >&2; }

# Debian packages that are missing, as `command:package`; only root can install them, others are told.
ensure_system_packages() {
    local missing=() item
    for item in "$@"; do
        command -v "${item%%:*}" >/dev/null || missing+=("${item##*:}")
    done
    if ! python3 -c 'import ensurepip, venv' 2>/dev/null && ! command -v uv >/dev/null; then
        missing+=(python3-venv)
    fi
    [ "${#missing[@]}" -gt 0 ] || return 0
    if [ "$(id -u)" -ne 0 ] || ! command -v apt-get >/dev/null; then
        say "Missing on this machine: ${missing[*]}. What needs them is skipped or fails; install them, or run as root."
        return 0
    fi
    say "Installing ${missing[*]} …"
    apt-get update -qq >/dev/null
    without_starting env DEBIAN_FRONTEND=noninteractive \
        apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
}

# Run a command while Debian's packages may start no service: the tests start those that they need.
without_starting() {
    local policy=/usr/sbin/policy-rc.d status=0
    if [ -e "$policy" ]; then
        "$@"
        return
    fi
    printf '#!/bin/sh\nexit 101\n' >"$policy"
    chmod 755 "$policy"
    "$@" || status=$?
    rm -f "$policy"
    return "$status"
}

# ensure_environment EXTRA [CONSTRAINTS [FOLDER PYTHON]]: in FOLDER (.venv), of PYTHON (python3); nothing is done while
# pyproject.toml and the constraints are what they were.
ensure_environment() {
    local extra=$1 folder=${3:-.venv} python=${4:-python3} constraints=() stamp uv
    stamp=$folder/agui-otel-$extra.installed
    [ -z "${2:-}" ] || constraints=(-c "$2")
    uv=$(command -v uv || command -v .venv/bin/uv || true)
    if [ ! -x "$folder/bin/python" ]; then
        "$python" -c 'import sys; sys.exit(sys.version_info < (3, 10))' || { say "Python 3.10 or newer is needed."; exit 2; }
        if [ -n "$uv" ]; then "$uv" venv -q --python "$python" "$folder"; else "$python" -m venv "$folder"; fi
    fi
    if cat pyproject.toml ${2:+"$2"} | cmp -s - "$stamp" && "$folder/bin/python" -c 'import agui_otel' 2>/dev/null; then
        return 0
    fi
    say "Installing agui-otel[$extra] into $folder; the first time this takes a few minutes, and with Phoenix about 1 GB …"
    if [ -n "$uv" ]; then
        "$uv" pip install -q --python "$folder/bin/python" "${constraints[@]}" -e ".[$extra]"
    else
        "$folder/bin/python" -m pip install -q --disable-pip-version-check "${constraints[@]}" -e ".[$extra]"
    fi
    cat pyproject.toml ${2:+"$2"} >"$stamp"
}
