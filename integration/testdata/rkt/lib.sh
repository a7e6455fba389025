# shellcheck shell=sh
# Functions for the entrypoints of these images, which follow the implementor's guide of rkt's
# stage1s exactly. An entrypoint refuses arguments that its version does not know, like rkt's
# programs, and logs its arguments and environment.
set -eu
here=${0%/*}
read -r version <"$here/version"
read -r log <"$here/log"
# Log the arguments, and the environment without the shell's own variables.
{
	printf '%s' "${0##*/}"
	[ $# -eq 0 ] || printf ' %s' "$@"
	printf '\n'
	env | grep -Ev '^(PWD|OLDPWD|SHLVL|_)=' | sort | sed "s/^/${0##*/}: /"
} >>"$log/calls"

# misused WHAT: logs that a program was called wrongly, and exits.
misused() {
	echo "${0##*/}: $1" >&2
	echo "misused ${0##*/}: $1" >>"$log/calls"
	exit 2
}

unfit() {
	echo "${0##*/}: $1" >&2
	exit 254
}

# since VERSION ARGUMENT
since() { [ "$version" -ge "$1" ] || misused "version $version does not know $2"; }

# dawdle: executes a helper if a test has asked for it. The helper's exit does not matter.
dawdle() { [ ! -e "$log/dawdles" ] || sleep 4719 || :; }

# of FILTER: prints the result of a jq filter of the pod's manifest.
of() { jq -r "$1" pod; }

stage2() { printf '%s' "stage1/rootfs/opt/stage2/$1/rootfs"; }

# volumes APP: mounts the app's volumes.
volumes() {
	eval "$(of '. as $pod | .apps[] | select(.name == "'"$1"'") | .mounts // [] | .[] | . as $m |
		($m.appVolume // ($pod.volumes[] | select(.name == $m.volume))) |
		@sh "volume \(.kind) \(.source // .name) \(.mode // "rw") \(.readOnly // false) \(.recursive // true) \($m.path)"' | sed "s|\$| '$1'|")"
}

# volume KIND SOURCE MODE READ-ONLY RECURSIVE PATH APP
volume() {
	to=$(stage2 "$7")$6
	from=$2
	if [ "$1" = empty ]; then
		from=sharedVolumes/$2
		mkdir -p "$from" && chmod "$3" "$from"
	fi
	if [ -d "$from" ]; then mkdir -p "$to"; else mkdir -p "${to%/*}" && touch "$to"; fi
	if [ "$5" = true ]; then mount --rbind "$from" "$to"; else mount --bind "$from" "$to"; fi
	[ "$4" = false ] || mount -o remount,bind,ro "$to"
}

# program APP: prints the command line that executes an app in its root, as its user. The
# commands in $announce are executed there before it.
program() {
	of '.apps[] | select(.name == "'"$1"'") | .app |
		(["chroot", "--userspec=\(.user):\(.group)", "--groups=\([(.supplementaryGIDs // [])[] | tostring] | join(","))", "'"$(stage2 "$1")"'",
			"env", "-i"] + [.environment[]? | "\(.name)=\(.value)"] +
		["sh", "-c", "cd \"$1\" && shift && '"${announce:-}"' exec \"$@\"", "sh", .workingDirectory // "/"] + .exec) | @sh'
}
