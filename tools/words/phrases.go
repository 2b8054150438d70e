package main

import "regexp"

// A phrase is a pattern that texts must not contain, and its replacement.
type phrase struct {
	pattern *regexp.Regexp
	instead string
}

// phrases are expressions that are hard to read, or for which the field has a word.
var phrases = []phrase{
	{
		regexp.MustCompile(`(?i)\b(is|are|was|were) of (a|an|the|one|it|them|its|their|all|which|what)\b`),
		"belongs to, has; or a noun",
	},
	{regexp.MustCompile(`(?i)\bthose (that|of|which|whose)\b`), "the noun"},
	{regexp.MustCompile(`(?i)\bthat of (the|a|an|its|their|one|which|what|it)\b`), "the noun"},
	{regexp.MustCompile(`(?i)\b(has|have|had|having) ([\w']+ ){1,4}be\b`), "makes, lets; or the verb itself"},
	{
		regexp.MustCompile(`(?i)\b(lets|let|letting) go of\b|\b(gives|give|gave|given|giving) back\b`),
		"frees, returns, releases",
	},
	{regexp.MustCompile(`(?i)\bbegun again\b|\bbegins? again\b`), "restarted"},
	{regexp.MustCompile(`(?i)\bfor want of\b`), "without; ran out of"},
	{regexp.MustCompile(`(?i)\b(and|or|nor|as) so (does|do|is|are)\b`), "the whole sentence"},
	{regexp.MustCompile(`(?i)\bkept apart\b`), "held out"},
	{regexp.MustCompile(`(?i)\bstand-?ins?\b`), "stub"},
	{regexp.MustCompile(`(?i)\bboards?\b`), "GPU"},
}

// keys are identifiers in files and programs that contain such words: JSON, YAML, C and CSV names.
var keys = regexp.MustCompile(`(?i)tensorboard|cache given back|near it: boards|keyboard|dashboard|clipboard` +
	`|motherboard|"boards?"|\bboards?[:=_[\]\\]|\x60boards?\x60|--board|_boards?\b|boards?/|board_\w+|,boards?,`)

// exceptions are files with the words of others.
var exceptions = []string{
	"LICENSE",
	"tools/words/phrases.go",
	"tools/words/words_test.go",
}
