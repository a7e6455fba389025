package proc

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestAnErrorOfAnotherKindIsNotExplained(t *testing.T) {
	for _, err := range []error{unix.ENOENT, unix.ENOSYS, unix.EPERM} {
		if got := ExplainDenied(err.Error()); got != err.Error() && os.Getuid() == 0 {
			t.Errorf("%v: %s, although no call is denied here", err, got)
		}
	}
}

func TestTheDocumentListsTheSystemCallsThatAreNeeded(t *testing.T) {
	text, err := os.ReadFile("../docs/support.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range needed {
		if !strings.Contains(string(text), "`"+c.name+"`") {
			t.Errorf("docs/support.md does not name %s", c.name)
		}
	}
}
