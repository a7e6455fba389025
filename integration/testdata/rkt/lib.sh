# shellcheck shell=sh
# What the entrypoints of these images share: the implementor's guide of rkt's
# stage1s to the letter, in shell. They refuse what their version does not know, as
# programs of rkt's do, and write down how they were called.
set -eu
here=${0%/*}
read -r version <"$here/version"
read -r log <"$here/log"
# What a call begins with: its arguments, and its environment but for the shell's.
{
	printf '%s' "${0##*/}"
	[ $# -eq 0 ] || printf ' %s' "$@"
	printf '\n'
	env | grep -Ev '^(PWD|OLDPWD|SHLVL|_)=' | sort | sed "s/^/${0##*/}: /"
} >>"$log/calls"

# misused WHAT: the end of a program that was called wrongly.
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

# dawdle: a helper, whose end does not matter, if a test has asked for it.
dawdle() { [ ! -e "$log/dawdles" ] || sleep 4719 || :; }

# of FILTER: what jq finds in the pod's manifest.
of() { jq -r "$1" pod; }

stage2() { printf '%s' "stage1/rootfs/opt/stage2/$1/rootfs"; }

# volumes APP: mounts its volumes.
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

# program APP: the command line that executes an app in its root, as its user. What
# $announce has is done there before.
program() {
	of '.apps[] | select(.name == "'"$1"'") | .app |
		(["chroot", "--userspec=\(.user):\(.group)", "--groups=\([(.supplementaryGIDs // [])[] | tostring] | join(","))", "'"$(stage2 "$1")"'",
			"env", "-i"] + [.environment[]? | "\(.name)=\(.value)"] +
		["sh", "-c", "cd \"$1\" && shift && '"${announce:-}"' exec \"$@\"", "sh", .workingDirectory // "/"] + .exec) | @sh'
}
