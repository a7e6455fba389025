package main

import (
	"errors"
	"strings"
	"unicode/utf8"
)

// Of the terminal, in pixels.
const (
	charWidth  = 7.83 // of the style's font, in which all characters have one width
	lineHeight = 19
	margin     = 16
)

const terminalStyle = `text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#c9d1d9}.command{fill:#ffffff;font-weight:bold}`

// sessionLines returns the lines of the first block of the language console.
func sessionLines(page []byte) ([]string, error) {
	_, block, found := strings.Cut(string(page), "```console\n")
	block, _, closed := strings.Cut(block, "\n```")
	if !found || !closed {
		return nil, errors.New("there is no block of the language console")
	}
	return strings.Split(block, "\n"), nil
}

// drawSession draws a terminal with the first session of a page.
func drawSession(page []byte) ([]byte, error) {
	lines, err := sessionLines(page)
	if err != nil {
		return nil, err
	}
	var d drawing
	columns := 0
	for i, line := range lines {
		columns = max(columns, utf8.RuneCountInString(line))
		class := "output"
		if strings.HasPrefix(line, "# ") {
			class = "command"
		}
		if line != "" {
			d.text(margin, margin+float64(i+1)*lineHeight-5, class, line)
		}
	}
	width := 2*margin + float64(columns)*charWidth
	return d.svg(float64(int(width+1)), float64(2*margin+len(lines)*lineHeight), "#0d1117", terminalStyle,
		"A terminal: "+strings.Join(lines, "; ")), nil
}
