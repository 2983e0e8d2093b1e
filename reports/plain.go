package reports

import (
	"fmt"
	"strings"
	"unicode"
)

// plain makes a text from outside harmless on a terminal and in a line of a
// file: what would move the cursor, break the line or turn the direction of
// writing is shown by its number.
func plain(s string) string {
	if !strings.ContainsFunc(s, isUnruly) {
		return s
	}
	var b strings.Builder
	for _, c := range s {
		if isUnruly(c) {
			fmt.Fprintf(&b, `\u{%x}`, c)
		} else {
			b.WriteRune(c)
		}
	}
	return b.String()
}

// isUnruly tells whether a character does something else than being seen.
func isUnruly(c rune) bool {
	return unicode.IsControl(c) || unicode.In(c, unicode.Cf, unicode.Zl, unicode.Zp)
}
