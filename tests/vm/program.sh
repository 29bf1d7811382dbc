# shellcheck shell=bash
# For the scripts that put tutti into the virtual machine: $program is the executable, without symbols.
# It is TUTTI, or what cargo builds by the profile emulated.

if [[ -z ${TUTTI-} ]]; then
    cargo build --quiet --profile emulated --package tutti
    TUTTI=${CARGO_TARGET_DIR:-target}/emulated/tutti
fi
program=$(mktemp)
trap 'rm -f "$program"' EXIT
strip -o "$program" "$TUTTI"
chmod 755 "$program"
