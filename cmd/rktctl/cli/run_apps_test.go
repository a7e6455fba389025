package cli

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/local"
)

// parsedApps parses the words of a command line after "run".
func parsedApps(line string) (apps []local.AppConfig, network string, err error) {
	cmd := &cobra.Command{Use: "run", SilenceErrors: true, SilenceUsage: true}
	w := newAppWords(cmd)
	cmd.Flags().StringVar(&network, "network", "", "")
	cmd.RunE = func(_ *cobra.Command, args []string) (err error) {
		apps, err = w.parse(args)
		return err
	}
	cmd.SetArgs(strings.Fields(line))
	err = cmd.Execute()
	return apps, network, err
}

// The syntax is rkt's: --- ends the arguments of an app, and options follow the image of their app.
func TestTheCommandLineOfRunHasAppsWithTheirOptionsAndArguments(t *testing.T) {
	for line, want := range map[string][]string{
		"./a":                         {"app ./a"},
		"./a -- x -y --z":             {"app ./a x -y --z"},
		"--env A=1 ./a --user 7 -- x": {"app ./a x env=A=1 user=7"},
		"--network host ./a --app=web --cwd /x -- 1 --- ./b --app db --env B=2 --env C=3 -- 2 -3 --- ./c --memory 5": {
			"web ./a 1 cwd=/x", "db ./b 2 -3 env=B=2 env=C=3", "c ./c memory=5",
		},
		"./a --env A=1 ./b --env B=2":       {"a ./a env=A=1", "b ./b env=B=2"},
		"./a ./b -- of b":                   {"a ./a", "b ./b of b"},
		"./a -- --- ./b --exec /x ./c -- 1": {"a ./a", "b ./b exec=/x", "c ./c 1"},
		"docker.io/library/Web_1:v2 ./x.y/db.tar@ registry:5000/q@sha256:12": {"web-1 docker.io/library/Web_1:v2", "db ./x.y/db.tar@", "q registry:5000/q@sha256:12"},
		"./a -t --volume /a:/b:ro -- 1 --- ./b":                              {"a ./a 1 terminal volume=/b", "b ./b"},
		"./a -- 1 --- --user 8 ./b -- --app x":                               {"a ./a 1", "b ./b --app x user=8"},
	} {
		apps, network, err := parsedApps(line)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		var got []string
		for _, a := range apps {
			words := append([]string{a.Name, a.Image}, a.Args...)
			for _, e := range a.Env {
				words = append(words, "env="+e)
			}
			for _, o := range [][2]string{{"exec", strings.Join(a.Exec, " ")}, {"user", a.User}, {"cwd", a.Cwd}} {
				if o[1] != "" {
					words = append(words, o[0]+"="+o[1])
				}
			}
			if a.Memory != 0 {
				words = append(words, "memory=5")
			}
			if a.Terminal {
				words = append(words, "terminal")
			}
			for _, v := range a.Volumes {
				words = append(words, "volume="+v.Target)
			}
			got = append(got, strings.Join(words, " "))
		}
		if !slices.Equal(got, want) || network != "" != strings.Contains(line, "--network") {
			t.Errorf("%s: %q, want %q; network %q", line, got, want, network)
		}
	}
}

func TestACommandLineOfRunThatIsWrongIsRefused(t *testing.T) {
	for line, why := range map[string]string{
		"":                               "no IMAGE",
		"-- x":                           "no IMAGE",
		"--env A=1":                      "IMAGE",
		"./a -- 1 ---":                   "an IMAGE has to follow ---",
		"./a -- 1 --- -- 2":              "an IMAGE has to follow ---",
		"./a -- 1 --- ./b -- 2 ---":      "an IMAGE has to follow ---",
		"./a --- ./b":                    "---",
		"./a ./b/a":                      `two apps have the name "a"`,
		"./a --app=x -- --- ./b --app=x": `two apps have the name "x"`,
		"./a -- --- ./b --network=host":  "network", // it is the pod's
		"./a -- --- ./b --memory=much":   "memory",
		"./a --volume=x":                 "volume",
	} {
		_, _, err := parsedApps(line)
		var usage *usageError
		if err == nil || !strings.Contains(err.Error(), why) || !errors.As(err, &usage) && line != "./a --- ./b" {
			t.Errorf("%q: %v, want %q", line, err, why)
		}
	}
}
