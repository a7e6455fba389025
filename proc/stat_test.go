package proc

import "testing"

func TestParseStat(t *testing.T) {
	const rest = " S 7 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 0 0"
	for name, tc := range map[string]struct {
		line string
		want Stat
		ok   bool
	}{
		"plain":                        {"42 (sh)" + rest, Stat{42, 7, 'S', 4711, 26}, true},
		"parentheses in the name":      {"42 (a) b (c)" + rest, Stat{42, 7, 'S', 4711, 26}, true},
		"a name that looks like a end": {"42 () R 1 (x)" + rest, Stat{42, 7, 'S', 4711, 26}, true},
		"newline at the end":           {"42 (sh)" + rest + "\n", Stat{42, 7, 'S', 4711, 26}, true},
		"empty":                        {"", Stat{}, false},
		"short":                        {"42 (sh) S 7", Stat{}, false},
		"no number":                    {"x (sh)" + rest, Stat{}, false},
	} {
		got, err := parseStat([]byte(tc.line))
		if (err == nil) != tc.ok || got != tc.want {
			t.Errorf("%s: %+v, %v; want %+v", name, got, err, tc.want)
		}
	}
}

func FuzzParseStat(f *testing.F) {
	f.Add([]byte("42 (sh) S 7 1 1 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 4711 0 0"))
	f.Add([]byte(") ("))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := parseStat(b); err != nil && s != (Stat{}) {
			t.Errorf("%q: an error and %+v", b, s)
		}
	})
}
