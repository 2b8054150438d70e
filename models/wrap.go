package models

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/vprof/vprof/internal/options"
)

// Wrap is one group of fully_shard calls: the modules that the patterns match.
type Wrap struct {
	Patterns []string
	// Every is the number of successive matching modules that one call wraps; zero wraps all of them in one call.
	Every int
	// KeepsGathered reports whether parameters stay gathered after forward (reshard_after_forward=False of the call),
	// whatever Reshard is.
	KeepsGathered bool
}

// WrapEnds is the value of wrap with which fully_shard wraps the blocks, the embedding, and the last norm together with
// the output layer, whose parameters stay gathered after forward, as in accelerate 1.14 and later, and torchtitan.
const WrapEnds = "ends"

// Wraps returns the fully_shard calls of a strategy: "layers.*" wraps every block, "layers.*/2" two at a time,
// "norm:head" both modules together, and "norm:head/kept" keeps their parameters gathered after forward.
func (s *Strategy) Wraps() []Wrap {
	out := make([]Wrap, len(s.Wrap))
	for i, text := range s.Wrap {
		out[i], _ = parseWrap(text) // ParseStrategy has parsed it before
	}
	return out
}

func parseWrap(text string) (Wrap, error) {
	text, kept := strings.CutSuffix(text, "/kept")
	pattern, number, several := strings.Cut(text, "/")
	w := Wrap{Patterns: strings.Split(pattern, ":"), Every: 1, KeepsGathered: kept}
	if len(w.Patterns) > 1 {
		w.Every = 0
	}
	if slices.Contains(w.Patterns, "") {
		return Wrap{}, fmt.Errorf("%q has an empty pattern; write module names between the colons", text)
	}
	if several {
		n, err := options.ParseWithin(number, 1, maxWrappedModules)
		if err != nil {
			return Wrap{},
				fmt.Errorf("%s: after the slash, write the number of modules to wrap together: %w", text, err)
		}
		w.Every = int(n)
	}
	return w, nil
}

// maxWrappedModules is the largest number of modules in one call.
const maxWrappedModules = 1 << 16

// parseWraps parses fully_shard calls, joined by "+".
func parseWraps(value string) ([]string, error) {
	all, err := options.ParseNames(value)
	for _, text := range all {
		w, wrong := parseWrap(text)
		err = cmp.Or(err, wrong)
		if err == nil && len(all) > 1 && slices.Contains([]string{WrapRootOnly, WrapEnds}, w.Patterns[0]) {
			err = fmt.Errorf("%s applies to all modules; leave out other patterns", w.Patterns[0])
		}
	}
	if err != nil {
		return nil, err
	}
	return all, nil
}

// ReshardRanks returns the number of ranks over which parameters are resharded after forward; zero if it is no number.
func (s *Strategy) ReshardRanks() int64 {
	n, err := strconv.ParseInt(s.Reshard, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

func parseReshard(value string) (string, error) {
	if n, err := strconv.ParseInt(value, 10, 64); err == nil {
		if n < 1 || n > maxRanks {
			return "", fmt.Errorf("%d ranks: need 1 to %d", n, maxRanks)
		}
		return strconv.FormatInt(n, 10), nil
	}
	word, err := options.ParseOneOf(strings.ToLower(value), "true", "false", "auto")
	if err != nil {
		return "", fmt.Errorf("%w, or a number of ranks", err)
	}
	return word, nil
}
