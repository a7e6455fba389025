// Package docs embeds the documents whose code programs use, so that programs use
// exactly the code that people have read.
package docs

import _ "embed"

//go:embed stage1-authors.md
var stage1Authors string

// Stage1Authors returns the guide for authors of stage1s.
func Stage1Authors() string { return stage1Authors }

//go:embed stage1-bubblewrap.md
var stage1Bubblewrap string

// Stage1Bubblewrap returns the guide to a stage1 of one step.
func Stage1Bubblewrap() string { return stage1Bubblewrap }
