package serve_test

import (
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rkt/containerd-shim-rkt-v1/abi/serve"
)

func TestTheExampleOfTheDocumentIsACallAndItsAnswer(t *testing.T) {
	document, err := os.ReadFile("../../docs/stage1-abi.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(document), "\n## 11. Calls on a socket\n")
	var example []string
	for line := range strings.Lines(section) {
		if text, ok := strings.CutPrefix(line, "    "); ok {
			example = append(example, text)
		} else if len(example) > 0 {
			break
		}
	}
	text := strings.TrimSuffix(strings.Join(example, ""), "\n")
	request, answers, ok := strings.Cut(text, "}\nerror")
	if !ok {
		t.Fatalf("the example is %q", text)
	}
	for _, test := range []struct {
		text string
		want []serve.Word
	}{
		{request + "}", []serve.Word{serve.Call}},
		{"error" + answers, []serve.Word{serve.Error, serve.Exit}},
	} {
		a, b, raw := pair(t)
		if _, err := unix.Write(raw, []byte(test.text)); err != nil {
			t.Fatal(err)
		}
		b.HangUp()
		for _, want := range test.want {
			if word, body, err := a.Receive(serve.MaxAnswer); err != nil || word != want {
				t.Errorf("got %s %q, %v; want %s", word, body, err, want)
			}
		}
		if _, _, err := a.Receive(1); err == nil || err.Error() != "EOF" {
			t.Errorf("after %q: %v", test.text, err)
		}
	}
}
