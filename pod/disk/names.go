package disk

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

// AppName is the name by which a stage1 knows an app: an appc name that is unique in its
// pod.
type AppName string

// newUUID returns a random UUID (version 4) in the canonical form.
func newUUID() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// isUUID reports whether a name is a UUID in the canonical form. Names that were read from
// a file are checked with it, because they become elements of paths.
func isUUID(s string) bool {
	if len(s) != 36 {
		return false
	}
	for i, c := range []byte(s) {
		dash := i == 8 || i == 13 || i == 18 || i == 23
		digit := c >= '0' && c <= '9' || c >= 'a' && c <= 'f'
		if dash != (c == '-') || !dash && !digit {
			return false
		}
	}
	return true
}

// Sizes of the parts of a name: the part that people read, and the hash that distinguishes
// ids whose readable parts are equal.
const (
	readableLen = 40
	hashLen     = 8 // bytes
)

// newAppName names an app. Different ids get different names, and so does one id in
// different generations: a client may delete a container and make another one with the same
// id, and a late request for the first must not reach the second.
func newAppName(id string, generation int) AppName {
	sum := sha256.Sum256([]byte(id))
	name := fmt.Sprintf("%s-%d", hex.EncodeToString(sum[:hashLen]), generation)
	if r := readable(id); r != "" {
		name = r + "-" + name
	}
	return AppName(name)
}

// readable returns s in lower case, with a dash in place of characters that an ACName cannot
// have, and no longer than readableLen.
func readable(s string) string {
	var b strings.Builder
	dash := false
	for _, c := range []byte(strings.ToLower(s)) {
		if b.Len() == readableLen {
			break
		}
		if c >= 'a' && c <= 'z' || c >= '0' && c <= '9' {
			b.WriteByte(c)
			dash = false
		} else if !dash && b.Len() > 0 {
			b.WriteByte('-')
			dash = true
		}
	}
	return strings.TrimSuffix(b.String(), "-")
}

// valid reports whether a name that was read from a file can be a name that newAppName
// made, and so can be used as the name of a directory.
func (n AppName) valid() bool {
	if n == "" || len(n) > 200 || n[0] == '-' || n[len(n)-1] == '-' {
		return false
	}
	for _, c := range []byte(n) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' {
			return false
		}
	}
	return true
}
