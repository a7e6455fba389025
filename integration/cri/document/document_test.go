package document

import "testing"

const text = "Words.\n<!-- begin features: made by a test -->\nold\n<!-- end features -->\nMore words.\n"

func TestABlockIsReplacedAndNothingElse(t *testing.T) {
	got, err := replace(text, "features", "new\n")
	if want := "Words.\n<!-- begin features: made by a test -->\n\nnew\n\n<!-- end features -->\nMore words.\n"; err != nil || got != want {
		t.Errorf("%q, %v", got, err)
	}
	again, err := replace(got, "features", "new")
	if err != nil || again != got {
		t.Errorf("a second time: %q, %v", again, err)
	}
}

func TestAMissingBlockIsAnError(t *testing.T) {
	for _, name := range []string{"feature", "other"} {
		if _, err := replace(text, name, "new"); err == nil {
			t.Errorf("%s was found", name)
		}
	}
}

func TestATableEscapesItsCells(t *testing.T) {
	if got, want := Table([][]string{{"a", "b"}, {"x|y", "z"}}), "| a | b |\n| --- | --- |\n| x\\|y | z |\n"; got != want {
		t.Errorf("%q", got)
	}
}
