# shellcheck shell=bash
# For scripts that run as root in the virtual machine: checks, and sessions of ordinary users.

checks_failed=0

# For scripts that end with the first failure: says which command it was.
name_failures() {
    set -eE
    trap 'echo "${BASH_SOURCE[0]##*/}, line $LINENO: exit status $? of: $BASH_COMMAND" >&2' ERR
}

# check NAME COMMAND...: one line that says whether COMMAND succeeded; its output where it did not.
check() {
    local name=$1 began=$SECONDS output
    shift
    if output=$("$@" 2>&1); then
        echo "ok      $name ($((SECONDS - began)) s)"
    else
        echo "FAILED  $name"
        printf '%s\n' "$output" | sed 's/^/        | /'
        checks_failed=$((checks_failed + 1))
    fi
}

# Ends the script: with 1 if a check has failed.
finish() {
    if ((checks_failed > 0)); then
        echo "$checks_failed checks FAILED"
        exit 1
    fi
    echo "all checks passed"
    exit 0
}

# eventually SECONDS COMMAND...: repeats COMMAND until it succeeds; fails when the time is up.
eventually() {
    local end=$((SECONDS + $1))
    shift
    until "$@"; do
        if ((SECONDS >= end)); then
            echo "not within the time: $*"
            return 1
        fi
        sleep 0.1
    done
}

# equal EXPECTED FOUND
equal() {
    [[ $1 == "$2" ]] || {
        echo "expected: $1"
        echo "found:    $2"
        return 1
    }
}

# login_session USER COMMAND: runs a shell command in a login session of its own, made by PAM. The
# session ends with the command.
login_session() {
    systemd-run --uid="$1" -p PAMName=login --pipe --wait --quiet --collect \
        bash -lc "cd && $2" </dev/null
}

# Opens a session of the user that lasts until it is closed. Commands of `as` run beside it.
log_in() {
    systemd-run --uid="$1" -p PAMName=login --unit="login-$1" --quiet --collect sleep infinity &&
        eventually 30 has_session "$1" &&
        eventually 30 as "$1" 'systemctl --user is-active --quiet default.target'
}

# Closes the session, as a logout does: without lingering, the user's manager stops ten seconds later.
log_out() {
    systemctl stop "login-$1"
    eventually 20 has_no_session "$1"
}

has_session() { [[ -n $(session_of "$1") ]]; }

has_no_session() { [[ -z $(session_of "$1") ]]; }

# Waits until systemd has ended all that it ran for a user without lingering.
is_gone() { ! systemctl is-active --quiet "user@$(id -u "$1").service" "user-runtime-dir@$(id -u "$1").service"; }

# The cgroups of the user's first session, one a line: one, or one of each hierarchy of systemd's on machines
# with cgroup v1.
session_of() {
    local mount scope
    for mount in /sys/fs/cgroup /sys/fs/cgroup/unified /sys/fs/cgroup/systemd; do
        for scope in "$mount/user.slice/user-$(id -u "$1").slice"/session-*.scope; do
            [[ ! -d $scope ]] || {
                echo "$scope"
                break
            }
        done
    done
}

# as USER COMMAND: runs a shell command as the user, in the open session. With WITHOUT_MANAGER, the command
# finds no socket of the user's systemd manager or bus.
as() {
    local scopes scope wrapper=(env)
    [[ -z ${WITHOUT_MANAGER-} ]] ||
        wrapper=(unshare --mount sh -c "mount -t tmpfs none /run/user/$(id -u "$1") && exec \"\$@\"" sh)
    mapfile -t scopes < <(session_of "$1")
    ((${#scopes[@]} > 0)) || {
        echo "$1 has no session" >&2
        return 1
    }
    (
        for scope in "${scopes[@]}"; do
            echo "$BASHPID" >"$scope/cgroup.procs"
        done
        exec "${wrapper[@]}" setpriv --reuid="$1" --regid="$1" --init-groups --reset-env \
            env XDG_RUNTIME_DIR="/run/user/$(id -u "$1")" HOME="/home/$1" \
            DBUS_SESSION_BUS_ADDRESS="unix:path=/run/user/$(id -u "$1")/bus" \
            bash -c "cd; $2"
    )
}
