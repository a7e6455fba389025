# shellcheck shell=sh
# shellcheck disable=SC2154 # of lib.sh
# Further functions for the entrypoints of a mutable image. The pod's own files are in fixture/:
# a directory for every app, and the orders to the supervisor.

# one_app ARGUMENT...: reads the arguments of a call for one app, and sets $app.
one_app() {
	app=''
	for a; do
		case $a in
		--debug=true | --debug=false) ;;
		--app=?*) app=${a#--app=} ;;
		*) misused "unknown option $a" ;;
		esac
	done
	[ -n "$app" ] || misused "no --app"
	crossing
}

# crossing: checks that the environment has exactly the variables that rkt set for calls into the
# pod.
crossing() {
	[ "$(env | sed -n 's/^\([A-Za-z0-9_]*\)=.*/\1/p' | grep -Evx 'PWD|OLDPWD|SHLVL|_' | sort | tr '\n' ' ')" = \
		"PATH RKT_STAGE1_ENTERCMD RKT_STAGE1_ENTERPID " ] || misused "environment: $(env | tr '\n' ' ')"
	[ -x "$RKT_STAGE1_ENTERCMD" ] || unfit "cannot enter the pod"
	kill -0 "$RKT_STAGE1_ENTERPID" || unfit "there is no pod"
	[ "$(cat "/proc/$(cat ppid)/task/$(cat ppid)/children")" = "$RKT_STAGE1_ENTERPID " ] ||
		misused "$RKT_STAGE1_ENTERPID is not the only child of $(cat ppid)"
}

# mode APP STREAM
mode() {
	of '.apps[] | select(.name == "'"$1"'") | .annotations[]? | select(.name == "coreos.com/rkt/stage2/'"$2"'") | .value'
}

# of_app APP FILTER
of_app() { of '.apps[] | select(.name == "'"$1"'") | '"$2"; }

has_variable() { of_app "$1" '.app.environment[]?.name' | grep -qx "$2"; }

# mux APP: prints the directory of the app's multiplexer. In version 5 it is another directory,
# which only attach knows.
mux() {
	if [ "$version" -ge 6 ]; then
		printf 'stage1/rootfs/rkt/iottymux/%s' "$1"
	else
		printf 'fixture/%s/mux' "$1"
	fi
}
