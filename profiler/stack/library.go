package stack

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/trace"
)

// Libraries maps packages other than PyTorch, by their names on PyPI, and "cuda" and "cudnn" to releases
// ("transformers": "5.12").
type Libraries map[string]string

// A libraryRow describes the releases of a package other than PyTorch whose code affects a step's allocations.
type libraryRow struct {
	Name string
	// First and Newest are the oldest and the newest supported release. Oldest is an earlier release since which most
	// rules are known; empty if there is none. Ranges of releases start at Oldest.
	Oldest, First, Newest string
	// Changes are the changes of rules by release, oldest first.
	Changes []ruleChange
}

// ruleChange is a change of rules with a release of a library.
type ruleChange struct {
	Since string
	// In names the code of the library that changed.
	In string
	// Sets are the fields of [trace.Libraries] that the change sets.
	Sets json.RawMessage
}

// libraryTable has a row for each supported library, confirmed by recorded steps (models/hfconfig/testdata,
// cli/testdata/trl.jsonl.gz). A library without changes has the same rules in all releases.
//
//go:embed libraries.json
var libraryTable []byte

var libraries = sync.OnceValue(func() (all []libraryRow) {
	decodeRow(libraryTable, &all)
	return all
})

// LibraryNames returns the names of all libraries that a stack may name.
func LibraryNames() []string {
	return lists.Map(libraries(), func(l libraryRow) string { return l.Name })
}

func libraryNamed(name string) *libraryRow {
	i := slices.IndexFunc(libraries(), func(l libraryRow) bool { return l.Name == name })
	if i < 0 {
		return nil
	}
	return &libraries()[i]
}

// Newest returns the newest known release of a library; empty if its release affects no rules.
func Newest(name string) string {
	if l := libraryNamed(name); l != nil && l.Changes != nil {
		return l.Newest
	}
	return ""
}

// ReleasesWithChanges returns the releases of a library, over about two years, that changed rules, oldest first. Each
// has the rules of all releases up to the next. It is nil for a library without changes.
func ReleasesWithChanges(name string) []string {
	l := libraryNamed(name)
	if l == nil || l.Changes == nil {
		return nil
	}
	from := cmp.Or(l.Oldest, l.First)
	begun := lists.Map(l.Changes, func(c ruleChange) string { return c.Since })
	return append([]string{from}, lists.Filter(begun, func(since string) bool {
		return mustParse(from).before(mustParse(since))
	})...)
}

// ParseLibraries parses releases such as "transformers=5.12,trl=1.16". Patch versions are dropped.
func ParseLibraries(text string) (Libraries, error) {
	all := Libraries{}
	for pair := range strings.SplitSeq(text, ",") {
		name, release, ok := strings.Cut(strings.TrimSpace(pair), "=")
		release = strings.TrimLeft(release, "=")
		if !ok || libraryNamed(name) == nil {
			return nil, fmt.Errorf("invalid %q: need NAME=RELEASE like transformers=5.12, with one of the names %s",
				pair, strings.Join(LibraryNames(), ", "))
		}
		at, err := parse(release)
		if err != nil {
			return nil, fmt.Errorf("invalid release %q of %s: need a release like 5.12", release, name)
		}
		if _, twice := all[name]; twice {
			return nil, fmt.Errorf("the package %s is given twice; remove one", name)
		}
		all[name] = at.String()
	}
	return all, nil
}

// String formats the releases as [ParseLibraries] parses them, in the order of [LibraryNames].
func (l Libraries) String() string { return l.format("=", ",") }

// Text formats the releases for messages: "transformers 5.12, trl 1.16".
func (l Libraries) Text() string { return l.format(" ", ", ") }

func (l Libraries) format(equals, comma string) string {
	names := slices.SortedFunc(maps.Keys(l), func(a, b string) int {
		return cmp.Or(slices.Index(LibraryNames(), a)-slices.Index(LibraryNames(), b), strings.Compare(a, b))
	})
	return strings.Join(lists.Map(names, func(name string) string { return name + equals + l[name] }), comma)
}

// Unknown returns the libraries whose release is older or newer than all supported ones.
func (l Libraries) Unknown() []string {
	return lists.Filter(slices.Sorted(maps.Keys(l)), func(name string) bool { return l.nearest(name) != l[name] })
}

// nearest returns the known release whose rules apply to the given release of a library.
func (l Libraries) nearest(name string) string {
	known, at := libraryNamed(name), mustParse(l[name])
	switch {
	case known == nil || known.First == "":
		return l[name]
	case at.before(mustParse(known.First)):
		return known.First
	case mustParse(known.Newest).before(at):
		return known.Newest
	}
	return l[name]
}

// WithLibraries returns the stack with the given releases of libraries.
func (s *Stack) WithLibraries(l Libraries) *Stack {
	other := *s
	other.libraries, other.libraryRules = l, rulesOf(l)
	if l["cuda"] != "" {
		other.versions.CUDA = l["cuda"]
	}
	for _, k := range knownStacks() {
		if v := l["cudnn"]; v != "" && k.versions.CuDNN == v {
			other.convolutions, other.cudnnOf, other.askedFor = k.convolutions, k.cudnnOf, k.askedFor
		}
	}
	if l["cudnn"] != "" {
		other.versions.CuDNN = l["cudnn"]
	}
	return &other
}

// rulesOf returns the rules for releases of libraries; a library without a release has the newest rules.
func rulesOf(l Libraries) (rules trace.Libraries) {
	for _, known := range libraries() {
		at, unknown := parse(l[known.Name])
		for _, c := range known.Changes {
			if unknown != nil || !at.before(mustParse(c.Since)) {
				decodeRow(c.Sets, &rules)
			}
		}
	}
	return rules
}

// mustParse parses a release that was already checked or is a constant of this package. It panics on an error.
func mustParse(release string) version {
	v, err := parse(release)
	if err != nil {
		panic(err)
	}
	return v
}
