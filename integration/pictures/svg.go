package main

import (
	"bytes"
	"encoding/xml"
	"fmt"
)

// drawing is an SVG that is being written.
type drawing struct {
	body bytes.Buffer
}

// escaped returns a text as XML.
func escaped(text string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(text)) // a buffer takes everything
	return b.String()
}

func (d *drawing) rect(x, y, width, height float64, colour string) {
	fmt.Fprintf(&d.body, "  <rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"%s\"/>\n", x, y, width, height, colour)
}

func (d *drawing) line(x1, y1, x2, y2 float64, colour string) {
	fmt.Fprintf(&d.body, "  <line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\"/>\n", x1, y1, x2, y2, colour)
}

// text writes a line of text. class is a class of the style.
func (d *drawing) text(x, y float64, class, text string) {
	fmt.Fprintf(&d.body, "  <text x=\"%.1f\" y=\"%.1f\" class=\"%s\" xml:space=\"preserve\">%s</text>\n", x, y, class, escaped(text))
}

// svg returns the whole document on a background of one colour. title is read to those who do not
// see the picture.
func (d *drawing) svg(width, height float64, background, style, title string) []byte {
	return fmt.Appendf(nil, `<svg xmlns="http://www.w3.org/2000/svg" width="%[1]g" height="%[2]g" viewBox="0 0 %[1]g %[2]g" role="img">
  <title>%[3]s</title>
  <style>%[4]s</style>
  <rect width="%[1]g" height="%[2]g" rx="6" fill="%[5]s"/>
%[6]s</svg>
`, width, height, escaped(title), style, background, d.body.String())
}
