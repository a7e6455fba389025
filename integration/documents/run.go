package documents

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// Result is the output of a step's command, and its exit code.
type Result struct {
	Output string
	Code   int
}

// separator begins the line that follows the output of a command.
const separator = "\x1e"

// Run executes the steps of a page in one shell, in a directory. scratch is a directory for
// files of its own. If the shell ends early, there are fewer results than steps.
func Run(ctx context.Context, steps []Step, dir, scratch string, env []string) ([]Result, error) {
	var script strings.Builder
	for i, s := range steps {
		file := filepath.Join(scratch, strconv.Itoa(i))
		text := s.Command
		if s.File != "" {
			if err := os.WriteFile(file+".content", []byte(s.Content), 0o644); err != nil {
				return nil, err
			}
			text = fmt.Sprintf("mkdir -p \"$(dirname %[1]s)\" && cat %[2]s.content >%[1]s", s.File, file)
		}
		if err := os.WriteFile(file, []byte(text+"\n"), 0o644); err != nil {
			return nil, err
		}
		fmt.Fprintf(&script, ". %s\nprintf '%s%%d\\n' $?\n", file, separator)
	}
	main, output := filepath.Join(scratch, "main"), filepath.Join(scratch, "output")
	if err := os.WriteFile(main, []byte(script.String()), 0o644); err != nil {
		return nil, err
	}
	// A file and not a pipe: a program in the background may keep it open.
	out, err := os.Create(output)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd := exec.CommandContext(ctx, "bash", main)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, env, out, out
	runErr := cmd.Run()
	text, err := os.ReadFile(output)
	if err != nil {
		return nil, err
	}
	results, rest := split(string(text))
	if len(results) < len(steps) {
		return results, fmt.Errorf("the shell has ended in the command of line %d (%v), after it printed\n%s", steps[len(results)].Line, runErr, rest)
	}
	return results, nil
}

// split takes the output of the shell apart.
func split(text string) (results []Result, rest string) {
	for {
		output, after, found := strings.Cut(text, separator)
		code, after, ended := strings.Cut(after, "\n")
		if !found || !ended {
			return results, text
		}
		n, err := strconv.Atoi(code)
		if err != nil {
			return results, text
		}
		results, text = append(results, Result{Output: output, Code: n}), after
	}
}

// Check returns the reason why a result is not that of the document, or an empty string.
func (s Step) Check(r Result) string {
	switch {
	case !s.Compare && r.Code != 0:
		return fmt.Sprintf("line %d: %s%s: exit code %d, and it printed\n%s", s.Line, s.Command, s.File, r.Code, r.Output)
	case s.Compare && !Matches(s.Want, r.Output):
		return fmt.Sprintf("line %d: %s: exit code %d, and it printed\n%s\ninstead of\n%s", s.Line, s.Command, r.Code, r.Output, s.Want)
	}
	return ""
}
