package documents

import (
	"fmt"
	"strings"
)

// Step is something that is done when a page is executed: a command, or a file to write.
type Step struct {
	Line    int    // of the page, for errors
	Command string // the text of a shell command; empty if the step is a file
	File    string // the file that is written
	Content string // of the file
	// Want is the output in the document. It is compared if Compare is set; otherwise the
	// command must succeed.
	Want    string
	Compare bool
}

// Page is the part of a document that can be executed.
type Page struct {
	Steps []Step
	// NotRun has the reason for each block that is not executed.
	NotRun []string
}

const directive = "<!-- test: "

// Parse reads a document. If section is not empty, only that section counts: the lines from a
// heading of this text to the next heading of the same level.
func Parse(text, section string) (Page, error) {
	p := parser{lines: strings.Split(text, "\n")}
	if section != "" {
		if err := p.narrow(section); err != nil {
			return Page{}, err
		}
	}
	for p.at < len(p.lines) {
		if err := p.line(); err != nil {
			return Page{}, fmt.Errorf("line %d: %w", p.at+1, err)
		}
	}
	if p.reason != "" || p.file != "" {
		return Page{}, fmt.Errorf("no block follows the last directive")
	}
	return p.page, nil
}

type parser struct {
	lines []string
	at    int
	page  Page
	// Of the directive before the next block.
	reason, file string
}

// narrow replaces the lines outside the section by empty ones, so that numbers of lines stay.
func (p *parser) narrow(section string) error {
	inside, found := false, false
	for i, line := range p.lines {
		if strings.HasPrefix(line, "## ") {
			inside = line == "## "+section
			found = found || inside
		}
		if !inside {
			p.lines[i] = ""
		}
	}
	if !found {
		return fmt.Errorf("there is no section %q", section)
	}
	return nil
}

func (p *parser) line() error {
	line := strings.TrimSpace(p.lines[p.at])
	if words, ok := strings.CutPrefix(line, directive); ok {
		return p.directive(words)
	}
	if language, ok := strings.CutPrefix(line, "```"); ok {
		return p.block(language)
	}
	p.at++
	return nil
}

func (p *parser) directive(words string) error {
	if p.reason != "" || p.file != "" {
		return fmt.Errorf("no block follows the directive before this one")
	}
	if words == "first" {
		return p.hidden()
	}
	words, closed := strings.CutSuffix(words, " -->")
	reason, isReason := strings.CutPrefix(words, "not run: ")
	file, isFile := strings.CutPrefix(words, "file ")
	if !closed || !isReason && !isFile {
		return fmt.Errorf("unknown directive %q", words)
	}
	if isReason {
		p.reason = reason
	} else {
		p.file = file
	}
	p.at++
	return nil
}

// hidden reads commands that readers do not see.
func (p *parser) hidden() error {
	start := p.at + 1
	for p.at = start; p.at < len(p.lines); p.at++ {
		if strings.TrimSpace(p.lines[p.at]) == "-->" {
			p.script(start)
			p.at++
			return nil
		}
	}
	return fmt.Errorf("the directive of line %d has no end", start)
}

func (p *parser) block(language string) error {
	indent := len(p.lines[p.at]) - len(strings.TrimLeft(p.lines[p.at], " "))
	start := p.at + 1
	for p.at = start; ; p.at++ {
		if p.at == len(p.lines) {
			return fmt.Errorf("the block of line %d has no end", start)
		}
		if strings.TrimSpace(p.lines[p.at]) == "```" {
			break
		}
		p.lines[p.at] = p.lines[p.at][min(indent, len(p.lines[p.at])):]
	}
	end := p.at
	defer func() { p.at, p.reason, p.file = end+1, "", "" }()
	switch {
	case p.file != "":
		p.page.Steps = append(p.page.Steps, Step{Line: start, File: p.file, Content: strings.Join(p.lines[start:end], "\n") + "\n"})
	case p.reason != "":
		p.page.NotRun = append(p.page.NotRun, p.reason)
	case language == "sh":
		p.script(start)
	case language == "console":
		return p.console(start, end)
	}
	return nil
}

// script adds the commands of the lines from start to p.at.
func (p *parser) script(start int) {
	for i := start; i < p.at; i++ {
		first, command := i, p.lines[i]
		for strings.HasSuffix(command, "\\") && i+1 < p.at {
			i++
			command += "\n" + p.lines[i]
		}
		if bare := strings.TrimSpace(command); bare != "" && !strings.HasPrefix(bare, "#") {
			p.page.Steps = append(p.page.Steps, Step{Line: first + 1, Command: command})
		}
	}
}

func (p *parser) console(start, end int) error {
	var step *Step
	for i, line := range p.lines[start:end] {
		command, isCommand := strings.CutPrefix(line, "# ")
		if !isCommand {
			command, isCommand = strings.CutPrefix(line, "$ ")
		}
		more, isMore := strings.CutPrefix(line, "> ")
		switch {
		case isCommand:
			p.page.Steps = append(p.page.Steps, Step{Line: start + i + 1, Command: command, Compare: true})
			step = &p.page.Steps[len(p.page.Steps)-1]
		case step == nil:
			return fmt.Errorf("a block of the language console begins with a command, and this one with %q", line)
		case isMore && step.Want == "":
			step.Command += "\n" + more
		default:
			step.Want += line + "\n"
		}
	}
	return nil
}
