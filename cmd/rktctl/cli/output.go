package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
	"go.yaml.in/yaml/v3"
	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi"
)

// format is a form of output, and the value of the option --output.
type format string

// Forms of output.
const (
	formatText format = "text" // for people: tables, or the verb's own form
	formatJSON format = "json"
	formatYAML format = "yaml" // the same document as JSON's
)

// Set implements pflag.Value.
func (f *format) Set(s string) error {
	switch format(s) {
	case formatText, formatJSON, formatYAML:
		*f = format(s)
		return nil
	}
	return errors.New("the formats are text, json and yaml")
}

func (f *format) String() string { return string(*f) }

// Type implements pflag.Value.
func (f *format) Type() string { return "FORMAT" }

// output writes what a verb has found, in the form that the verb's options ask for.
type output struct {
	env    *Env
	format format
}

// newOutput adds the options --output and --json to a command.
func newOutput(e *Env, cmd *cobra.Command) *output {
	o := &output{e, formatText}
	cmd.Flags().VarP(&o.format, "output", "o", "the `FORMAT` of the output: text, json or yaml")
	cmd.Flags().BoolFunc("json", "the same as --output json", func(string) error { o.format = formatJSON; return nil })
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(
		[]cobra.Completion{string(formatText), string(formatJSON), string(formatYAML)}, cobra.ShellCompDirectiveNoFileComp))
	return o
}

// isText reports whether people read the output.
func (o *output) isText() bool { return o.format == formatText }

// write writes a value as JSON or YAML, or else the table that text returns.
func (o *output) write(value any, text func() *table) error {
	if o.isText() {
		return text().write(o.env)
	}
	return o.writeDocument(value)
}

// writeDocument writes a value as YAML if that is asked for, or else as JSON.
func (o *output) writeDocument(value any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	if err := enc.Encode(value); err != nil {
		return err
	}
	text := b.Bytes()
	if o.format == formatYAML {
		var err error
		if text, err = toYAML(text); err != nil {
			return err
		}
	}
	_, err := o.env.Stdout.Write(text)
	return err
}

// toYAML translates a JSON document. A YAML parser would refuse some characters that are
// valid in JSON, so JSON's parser reads the document.
func toYAML(text []byte) ([]byte, error) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	n, err := nodeOf(dec)
	if err != nil {
		return nil, err
	}
	return yaml.Marshal(n)
}

// nodeOf returns the next value of a JSON document. The members of an object keep their
// order.
func nodeOf(dec *json.Decoder) (*yaml.Node, error) {
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch v := token.(type) {
	case string:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: v}, nil
	case json.Delim:
		n := &yaml.Node{Kind: yaml.SequenceNode}
		if v == '{' {
			n.Kind = yaml.MappingNode // of keys and values in turn
		}
		for dec.More() {
			member, err := nodeOf(dec)
			if err != nil {
				return nil, err
			}
			n.Content = append(n.Content, member)
		}
		_, err := dec.Token() // the closing bracket
		return n, err
	case nil:
		return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!null", Value: "null"}, nil
	}
	return &yaml.Node{Kind: yaml.ScalarNode, Value: fmt.Sprint(token)}, nil // a number, true or false
}

// table is text in columns.
type table struct {
	columns []column
	rows    [][]cell
}

// column is a column of a table. If the terminal is too narrow, its cells are cut to least
// characters or more. With 0 they are never cut.
type column struct {
	head  string
	least int
}

// cell is a text in a table, which may have a colour.
type cell struct {
	text   string
	colour colour
}

// colour is a sequence that makes a terminal write in a colour.
type colour string

// Colours.
const (
	red    colour = "\x1b[31m"
	green  colour = "\x1b[32m"
	yellow colour = "\x1b[33m"
	dim    colour = "\x1b[2m"
)

// add adds a row of strings and cells.
func (t *table) add(cells ...any) {
	var row []cell
	for _, c := range cells {
		v, ok := c.(cell)
		if !ok {
			v.text = fmt.Sprint(c)
		}
		// A cell is one line, whatever a container or an image has written into it.
		v.text = abi.Printable(strings.Join(strings.Fields(v.text), " "))
		row = append(row, v)
	}
	t.rows = append(t.rows, row)
}

// write writes the table, in colours if the output is a terminal.
func (t *table) write(e *Env) error {
	widths := t.fit(widthOf(e.Stdout))
	coloured := e.coloured()
	var b strings.Builder
	line := func(text func(i int) cell) {
		var parts []string
		for i := range t.columns {
			c := text(i)
			shown := cut(c.text, widths[i])
			pad := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(shown))
			if coloured && c.colour != "" {
				shown = string(c.colour) + shown + "\x1b[0m"
			}
			parts = append(parts, shown+pad)
		}
		b.WriteString(strings.TrimRight(strings.Join(parts, "  "), " ") + "\n")
	}
	line(func(i int) cell { return cell{text: t.columns[i].head} })
	for _, row := range t.rows {
		line(func(i int) cell { return row[i] })
	}
	_, err := io.WriteString(e.Stdout, b.String())
	return err
}

// fit returns the widths of the columns, so that a line has at most width characters if
// that is possible. With a width of 0 nothing is cut.
func (t *table) fit(width int) []int {
	widths := make([]int, len(t.columns))
	total := 2 * (len(t.columns) - 1)
	for i, c := range t.columns {
		widths[i] = utf8.RuneCountInString(c.head)
		for _, row := range t.rows {
			widths[i] = max(widths[i], utf8.RuneCountInString(row[i].text))
		}
		total += widths[i]
	}
	for width > 0 && total > width {
		widest := -1
		for i, c := range t.columns {
			if c.least > 0 && widths[i] > max(c.least, utf8.RuneCountInString(c.head)) && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
		total--
	}
	return widths
}

// cut returns a text with at most width characters. An ellipsis replaces the characters
// that are left out.
func cut(text string, width int) string {
	if runes := []rune(text); len(runes) > width {
		return string(runes[:width-1]) + "…"
	}
	return text
}

// coloured reports whether the output may have colours: https://no-color.org.
func (e *Env) coloured() bool {
	return e.Getenv("NO_COLOR") == "" && e.Getenv("TERM") != "dumb" && isTerminal(e.Stdout)
}

// isTerminal reports whether w is a terminal.
func isTerminal(w io.Writer) bool { return widthOf(w) > 0 }

// widthOf returns the number of columns of a terminal. It returns 0 if w is not a terminal.
// A terminal that does not know its size counts as one of 80 columns.
func widthOf(w io.Writer) int {
	if o, ok := w.(*watchedOutput); ok {
		w = o.Writer
	}
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	if size.Col == 0 {
		return 80
	}
	return int(size.Col)
}
