package cli

import (
	"path"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rkt/containerd-shim-rkt-v1/cmd/rktctl/local"
)

// endOfArguments ends the arguments of an app, as in rkt. Another image follows.
const endOfArguments = "---"

// defaultAppName is the name of a pod's only app.
const defaultAppName = "app"

// appWords are the apps of a command line:
//
//	IMAGE [OPTIONS] [-- ARGUMENT…] [--- IMAGE [OPTIONS] [-- ARGUMENT…]]…
//
// An app's options follow its image. Those before the first image are the first app's.
type appWords struct {
	cmd  *cobra.Command
	apps []*appWord
}

// appWord is one app of a command line.
type appWord struct {
	name    *string
	flags   *appFlags
	options *pflag.FlagSet // they set name and flags
	image   string
	args    []string
}

// newAppWords adds the options of apps to a command.
func newAppWords(cmd *cobra.Command) *appWords {
	w := &appWords{cmd: cmd}
	w.addTo(cmd.Flags())
	return w
}

// newAppWord returns an app with the defaults of all options.
func newAppWord() *appWord {
	cmd := &cobra.Command{}
	a := &appWord{flags: newAppFlags(cmd), options: cmd.Flags()}
	a.name = cmd.Flags().String("app", "", "the `NAME` of the app. By default it is "+defaultAppName+", or if there are several apps, the last element of the image's name")
	return a
}

// addTo adds the options of apps to a set. The number of words that the set has parsed says to which
// app an option belongs.
func (w *appWords) addTo(set *pflag.FlagSet) {
	before := len(w.apps)
	newAppWord().options.VisitAll(func(f *pflag.Flag) {
		set.AddFlag(&pflag.Flag{
			Name: f.Name, Shorthand: f.Shorthand, Usage: f.Usage, DefValue: f.DefValue, NoOptDefVal: f.NoOptDefVal,
			Value: appOption{f.Value, func(value string) error {
				return w.app(before+max(set.NArg()-1, 0)).options.Set(f.Name, value)
			}},
		})
	})
}

// appOption is an option that is set for one of several apps.
type appOption struct {
	pflag.Value // its default and type
	set         func(string) error
}

// Set sets the option for the app whose image was the last word.
func (o appOption) Set(value string) error { return o.set(value) }

// app returns an app, by its place in the command line.
func (w *appWords) app(i int) *appWord {
	for len(w.apps) <= i {
		w.apps = append(w.apps, newAppWord())
	}
	return w.apps[i]
}

// parse returns the apps. Their options up to the first -- are parsed already.
func (w *appWords) parse(words []string) ([]local.AppConfig, error) {
	dash := w.cmd.ArgsLenAtDash()
	rest := w.segment(words, dash, 0)
	for rest != nil {
		set := pflag.NewFlagSet("", pflag.ContinueOnError)
		set.Usage = func() {}
		before := len(w.apps)
		w.addTo(set)
		if err := set.Parse(upToEnd(rest)); err != nil {
			return nil, errUsage(w.cmd, "%w", err)
		}
		if set.NArg() == 0 || set.ArgsLenAtDash() == 0 {
			return nil, errUsage(w.cmd, "an IMAGE has to follow %s", endOfArguments)
		}
		after := rest[len(upToEnd(rest)):]
		w.segment(set.Args(), set.ArgsLenAtDash(), before)
		if rest = nil; len(after) > 0 {
			rest = after[1:]
		}
	}
	return w.configs()
}

// upToEnd returns the words before the next end of arguments.
func upToEnd(words []string) []string {
	if i := slices.Index(words, endOfArguments); i >= 0 {
		return words[:i]
	}
	return words
}

// segment takes the images and the arguments of words, of which the first dash are before --; -1
// if there is no --. It returns the words after the end of arguments, or nil if there is none.
func (w *appWords) segment(words []string, dash, first int) (rest []string) {
	images, args := words, []string(nil)
	if dash >= 0 {
		images, args = words[:dash], words[dash:]
	}
	for i, image := range images {
		w.app(first + i).image = image
	}
	own := upToEnd(args)
	if len(images) > 0 {
		w.app(first + len(images) - 1).args = own
	}
	if len(own) == len(args) {
		return nil
	}
	return args[len(own)+1:]
}

// configs returns the requests for the apps.
func (w *appWords) configs() ([]local.AppConfig, error) {
	var all []local.AppConfig
	named := map[string]bool{}
	for _, a := range w.apps {
		if a.image == "" {
			return nil, errUsage(w.cmd, "one IMAGE or more, each with its options, and its arguments after --")
		}
		name := *a.name
		switch {
		case name != "":
		case len(w.apps) == 1:
			name = defaultAppName
		default:
			name = appNameOf(a.image)
		}
		if named[name] {
			return nil, errUsage(w.cmd, "two apps have the name %q: give one of them another name, with --app after its IMAGE", name)
		}
		named[name] = true
		c, err := a.flags.request(w.cmd, name, a.image, a.args)
		if err != nil {
			return nil, err
		}
		all = append(all, c)
	}
	if len(all) == 0 {
		return nil, errUsage(w.cmd, "no IMAGE")
	}
	return all, nil
}

// appNameOf returns the last element of an image's name without tag, digest and the extension of a
// file, in the characters that an app's name may have.
func appNameOf(image string) string {
	name, _, _ := strings.Cut(path.Base(strings.TrimRight(image, "/")), "@")
	name, _, _ = strings.Cut(name, ":")
	for _, extension := range []string{".tar.gz", ".tgz", ".tar", ".aci", ".oci"} {
		name = strings.TrimSuffix(name, extension)
	}
	return strings.Trim(strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, strings.ToLower(name)), "-")
}
