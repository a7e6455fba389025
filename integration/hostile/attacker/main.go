// Command attacker is the program of hostile containers and of their victims. It prints its
// loot on its standard output, in the form of package loot. It changes nothing: if it can
// open a file for writing, it closes the file again, unless the tests have made the file
// for it.
package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/rkt/containerd-shim-rkt-v1/integration/hostile/loot"
)

// target has the files that the attackers try to reach. The tests pass it in the environment, as lists
// separated by colons: a container of a machine has the machine's files to reach, and the host's.
type target struct {
	secrets []string // files that only root may read
	sticky  []string // directories in which every user may create files, or root
}

func main() {
	t := target{secrets: strings.Split(os.Getenv("SECRET"), ":"), sticky: strings.Split(os.Getenv("STICKY"), ":")}
	verb, args := "", []string(nil)
	if len(os.Args) > 1 {
		verb, args = os.Args[1], os.Args[2:]
	}
	switch verb {
	case "hunt":
		t.hunt(args)
	case "look":
		t.look(args)
	case "holes":
		t.holes(args)
	case "overwrite":
		overwrite()
	case "exchange":
		exchange(args)
	case "state":
		state()
	case "copy-up":
		copyUp(args)
	case "connect":
		connect()
	case "listen":
		listen(args[0])
	case "share":
		t.share()
	case "search":
		t.search(args[0])
	case "read":
		for _, secret := range t.secrets {
			t.read(secret, "by "+os.Args[0])
		}
	case "sleep":
		sleep()
	default:
		fail(fmt.Errorf("unknown verb %q", verb))
	}
}

// got reports loot.
func got(what, how string, args ...any) {
	loot.Say(os.Stdout, loot.Loot{What: what, How: fmt.Sprintf(how, args...)})
}

// read tries to read a secret at a path, and reports loot if it can.
func (t target) read(path, how string) bool {
	b, err := os.ReadFile(path)
	if err != nil {
		return false
	}
	loot.Say(os.Stdout, loot.Loot{What: loot.Read, How: how, Secret: strings.TrimSpace(string(b))})
	return true
}

// ready tells the tests that a continuous attack has begun.
func ready() { fmt.Println("ready") }

func sleep() {
	ready()
	for {
		time.Sleep(time.Hour)
	}
}

func must(err error) {
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "attacker:", err)
	os.Exit(125)
}
