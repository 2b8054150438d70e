// Package nearest finds the names that a mistyped name may mean.
package nearest

import (
	"cmp"
	"slices"
	"strings"
	"unicode"

	"github.com/vprof/vprof/internal/lists"
)

// Normalize reduces a name to its letters and digits, in lower case. "RTX 5060 Ti" and "rtx-5060-ti" become equal.
func Normalize(name string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return unicode.ToLower(r)
		}
		return -1
	}, name)
}

// Hint returns a part of a message: a semicolon and up to n names that a word may mean; empty if none is near.
func Hint(word string, names []string, n int) string {
	near := Names(word, names, n)
	if len(near) == 0 {
		return ""
	}
	return "; near it: " + strings.Join(near, ", ")
}

// Names returns up to n of the names, those nearest to word first, and names at the same distance in their given order.
// Names with a part that begins with the word come first. Names that differ in more than half of the longer text are
// omitted. Letter case and punctuation do not count ([Normalize]).
func Names(word string, names []string, n int) []string {
	folded := Normalize(word)
	if folded == "" {
		return nil
	}
	type candidate struct {
		name     string
		begins   int // 0 if a part of the name begins with the word, else 1: sorts first
		distance int
	}
	var near []candidate
	for _, name := range names {
		other := Normalize(name)
		c := candidate{name: name, begins: 1, distance: editDistance(folded, other)}
		if hasPrefix(name, folded) {
			c.begins = 0
		} else if 2*c.distance > max(len(folded), len(other)) {
			continue
		}
		near = append(near, c)
	}
	slices.SortStableFunc(near, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.begins, b.begins), cmp.Compare(a.distance, b.distance))
	})
	var best []string
	for _, c := range near[:min(n, len(near))] {
		best = append(best, c.name)
	}
	return best
}

// hasPrefix reports whether a part of the name, like 4090 of rtx-4090, begins with the folded word.
func hasPrefix(name, folded string) bool {
	for i := range name {
		if (i == 0 || Normalize(name[i-1:i]) == "") && strings.HasPrefix(Normalize(name[i:]), folded) {
			return true
		}
	}
	return false
}

// editDistance returns the Levenshtein distance in bytes: the least number of
// insertions, deletions and replacements that turn a into b.
func editDistance(a, b string) int {
	// row[j] is the distance of the part of a read so far to b[:j].
	row := lists.Ascending(len(b) + 1)
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			replace := diagonal
			if a[i] != b[j] {
				replace++
			}
			diagonal = row[j+1]
			row[j+1] = min(replace, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// LikelyTypo returns the name that word misspells: the nearest one that differs in at most a quarter of the letters, or
// only in their order, with the same digits; empty if there is none, or if word is one of the names.
func LikelyTypo(word string, names []string) string {
	folded, best, least := Normalize(word), "", len(word)
	for _, name := range names {
		if name == word {
			return ""
		}
		other := Normalize(name)
		d := editDistance(folded, other)
		if letters(folded) == letters(other) {
			d = 1 // some have changed places
		}
		if d < least && 4*d <= max(len(folded), len(other)) && digits(folded) == digits(other) {
			best, least = name, d
		}
	}
	return best
}

// letters returns the letters of a name in alphabetical order.
func letters(s string) string {
	b := []byte(s)
	slices.Sort(b)
	return string(b)
}

// digits returns the digits of a folded name.
func digits(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsDigit(r) {
			return r
		}
		return -1
	}, s)
}
