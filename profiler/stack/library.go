package stack

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/lists"
	"github.com/vprof/vprof/profiler/trace"
)

// Libraries are releases of packages beside PyTorch, by the names on PyPI ("transformers": "5.12"), "cuda" and "cudnn".
type Libraries map[string]string

// A library is a package beside PyTorch whose code decides what a step allocates.
type libraryReleases struct {
	name string
	// first and newest are the oldest and the newest supported release. oldest is the release with which ranges begin
	// where most rules of releases before first are known, too; else empty.
	oldest, first, newest string
	// changes are the rules that began with a release, oldest first.
	changes []ruleChange
}

// ruleChange is a rule that began with a release of a library.
type ruleChange struct {
	since string
	rule  func(*trace.Libraries)
}

// libraries are all supported libraries. One without changes has the same rules in all releases.
var libraries = []libraryReleases{
	{name: "cuda"},
	{name: "cudnn"},
	transformers,
	trl,
	{name: "peft", first: "0.21", newest: "0.21"},
	{name: "accelerate", first: "1.15", newest: "1.15"},
	{name: "bitsandbytes", first: "0.49", newest: "0.50"},
	{name: "liger-kernel", first: "0.8", newest: "0.8"},
	{name: "deepspeed", first: "0.19", newest: "0.19"},
	{name: "axolotl", first: "0.21", newest: "0.21"},
	{name: "llamafactory", first: "0.9", newest: "0.9"},
	{name: "ms-swift", first: "4.6", newest: "4.6"},
	{name: "torchtune", first: "0.6", newest: "0.7"},
	{name: "torchtitan", first: "0.3", newest: "0.3"},
}

// LibraryNames returns the names of all libraries that a stack may name.
func LibraryNames() []string {
	return lists.Map(libraries, func(l libraryReleases) string { return l.name })
}

func libraryNamed(name string) *libraryReleases {
	i := slices.IndexFunc(libraries, func(l libraryReleases) bool { return l.name == name })
	if i < 0 {
		return nil
	}
	return &libraries[i]
}

// Newest returns the newest known release of a library whose rules depend on its release; empty for others.
func Newest(name string) string {
	if l := libraryNamed(name); l != nil && l.changes != nil {
		return l.newest
	}
	return ""
}

// ReleasesWithChanges returns the releases of a library, of about two years, with which rules begin, oldest first; each
// has the rules of all releases up to the next. It is nil for a library without changes.
func ReleasesWithChanges(name string) []string {
	l := libraryNamed(name)
	if l == nil || l.changes == nil {
		return nil
	}
	from := cmp.Or(l.oldest, l.first)
	begun := lists.Map(l.changes, func(c ruleChange) string { return c.since })
	return append([]string{from}, lists.Filter(begun, func(since string) bool {
		return mustParse(from).before(mustParse(since))
	})...)
}

// ParseLibraries reads releases: "transformers=5.12,trl=1.16". Patches are dropped.
func ParseLibraries(text string) (Libraries, error) {
	all := Libraries{}
	for pair := range strings.SplitSeq(text, ",") {
		name, release, ok := strings.Cut(strings.TrimSpace(pair), "=")
		release = strings.TrimLeft(release, "=")
		if !ok || libraryNamed(name) == nil {
			return nil, fmt.Errorf("invalid %q: need NAME=RELEASE like transformers=5.12, with a name of %s", pair,
				strings.Join(LibraryNames(), ", "))
		}
		at, err := parse(release)
		if err != nil {
			return nil, fmt.Errorf("invalid release %q of %s: write it like 5.12", release, name)
		}
		if _, twice := all[name]; twice {
			return nil, fmt.Errorf("%s is given twice", name)
		}
		all[name] = at.String()
	}
	return all, nil
}

// String returns the releases as [ParseLibraries] reads them, in the order of [LibraryNames].
func (l Libraries) String() string { return l.format("=", ",") }

// Text returns the releases as people say them: "transformers 5.12, trl 1.16".
func (l Libraries) Text() string { return l.format(" ", ", ") }

func (l Libraries) format(equals, comma string) string {
	names := slices.SortedFunc(maps.Keys(l), func(a, b string) int {
		return cmp.Or(slices.Index(LibraryNames(), a)-slices.Index(LibraryNames(), b), strings.Compare(a, b))
	})
	return strings.Join(lists.Map(names, func(name string) string { return name + equals + l[name] }), comma)
}

// Unknown returns the libraries whose release is older or newer than the supported ones.
func (l Libraries) Unknown() []string {
	return lists.Filter(slices.Sorted(maps.Keys(l)), func(name string) bool { return l.nearest(name) != l[name] })
}

// nearest returns the known release whose rules the library's release has.
func (l Libraries) nearest(name string) string {
	known, at := libraryNamed(name), mustParse(l[name])
	switch {
	case known == nil || known.first == "":
		return l[name]
	case at.before(mustParse(known.first)):
		return known.first
	case mustParse(known.newest).before(at):
		return known.newest
	}
	return l[name]
}

// With returns the stack with releases of libraries.
func (s *Stack) With(l Libraries) *Stack {
	other := *s
	other.libraries, other.rules.Libraries = l, rulesOf(l)
	if l["cuda"] != "" {
		other.versions.CUDA = l["cuda"]
	}
	for _, k := range knownStacks {
		if v := l["cudnn"]; v != "" && k.versions.CuDNN == v {
			other.rules.Convolutions, other.cudnnOf, other.askedFor = k.rules.Convolutions, k.cudnnOf, k.askedFor
		}
	}
	if l["cudnn"] != "" {
		other.versions.CuDNN = l["cudnn"]
	}
	return &other
}

// rulesOf returns the rules of the releases of libraries; the newest rules for a library without a release.
func rulesOf(l Libraries) (rules trace.Libraries) {
	for _, known := range libraries {
		at, unknown := parse(l[known.name])
		for _, c := range known.changes {
			if unknown != nil || !at.before(mustParse(c.since)) {
				c.rule(&rules)
			}
		}
	}
	return rules
}

// mustParse parses a release that was checked before or is a constant of this package; it panics on an error.
func mustParse(release string) version {
	v, err := parse(release)
	if err != nil {
		panic(err)
	}
	return v
}
