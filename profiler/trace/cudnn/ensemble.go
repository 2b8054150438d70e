package cudnn

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/vprof/vprof/profiler/trace/cudnn/forest"
)

// An Ensemble chooses an engine in two votes of decision trees, as cuDNN's heuristics do. The first chooses the
// variant: an engine and its tile. If the variant splits the reduction, the second chooses the number of splits.
type Ensemble struct {
	variants *forest.Forest
	choices  []Choice     // by variant, without splits
	splits   []splitVotes // by variant
}

// splitVotes holds the votes on the number of splits of a variant; without votes the variant does not split.
type splitVotes struct {
	votes  *forest.Forest
	counts []int64 // by class of the votes
}

// newEnsemble combines the votes on variants with the votes on their splits, whose classes are numbers of splits. A
// variant is named like a choice without splits, such as "copies". If its kernel splits the reduction, a number follows
// ("copies/64x128@3"), since each such variant has its own votes on the number of splits.
func newEnsemble(variants *forest.Forest, counts map[string]*forest.Forest) (*Ensemble, error) {
	v := &Ensemble{
		variants: variants,
		choices:  make([]Choice, len(variants.Classes)),
		splits:   make([]splitVotes, len(variants.Classes)),
	}
	for i, variant := range variants.Classes {
		name, _, split := strings.Cut(variant, "@")
		var err error
		if v.choices[i], err = parseChoice(name); err != nil {
			return nil, err
		}
		if v.choices[i].Splits > 0 {
			return nil, fmt.Errorf("variant %q names splits, which another forest chooses", variant)
		}
		if !split {
			continue
		}
		if v.splits[i], err = newSplits(counts[variant]); err != nil {
			return nil, fmt.Errorf("splits of %s: %w", variant, err)
		}
	}
	return v, nil
}

func newSplits(votes *forest.Forest) (s splitVotes, err error) {
	s = splitVotes{votes, make([]int64, len(votes.Classes))}
	for i, c := range votes.Classes {
		if s.counts[i], err = strconv.ParseInt(c, 10, 64); err != nil || s.counts[i] < 1 {
			return s, fmt.Errorf("invalid number of splits %q: need 1 or more", c)
		}
	}
	return s, nil
}

// Choose returns the choice for a case with these features ([Study.Features]).
func (v *Ensemble) Choose(x []float32) Choice {
	variant := v.variants.Vote(x)
	choice := v.choices[variant]
	if s := &v.splits[variant]; s.votes != nil {
		choice.Splits = s.counts[s.votes.Vote(x)]
	}
	return choice
}

// AppendEnsemble appends an encoded ensemble to b: the votes on variants, and for each variant the votes on splits.
func AppendEnsemble(b []byte, variants forest.TrainedForest, counts map[string]forest.TrainedForest) []byte {
	forests := []forest.TrainedForest{variants}
	for _, variant := range variants.Classes {
		if strings.Contains(variant, "@") {
			forests = append(forests, counts[variant])
		}
	}
	return forest.Append(b, forests...)
}

// DecodeEnsemble decodes the encoding of AppendEnsemble and returns the remaining bytes.
func DecodeEnsemble(b []byte) (v *Ensemble, rest []byte, err error) {
	cuts, b, err := forest.DecodeCuts(b)
	if err != nil {
		return nil, nil, err
	}
	variants, b, err := cuts.Decode(b)
	if err != nil {
		return nil, nil, err
	}
	counts := map[string]*forest.Forest{}
	for _, variant := range variants.Classes {
		if !strings.Contains(variant, "@") {
			continue
		}
		if counts[variant], b, err = cuts.Decode(b); err != nil {
			return nil, nil, fmt.Errorf("splits of %s: %w", variant, err)
		}
	}
	v, err = newEnsemble(variants, counts)
	return v, b, err
}

// CorrectedRules are the rules of one operation: ensembles, each of which corrects the earlier ones. A correcting
// ensemble is trained on cases where they are wrong, and votes [Kept] if they are right.
type CorrectedRules []*Ensemble

// DecodeRules decodes one or more consecutive ensembles.
func DecodeRules(b []byte) (CorrectedRules, error) {
	var c CorrectedRules
	for len(c) == 0 || len(b) > 0 {
		e, rest, err := DecodeEnsemble(b)
		if err != nil && len(c) > 0 {
			err = fmt.Errorf("corrections: %w", err)
		}
		if err != nil {
			return nil, err
		}
		c, b = append(c, e), rest
	}
	return c, nil
}

// Choose returns the vote of the last ensemble that does not vote [Kept].
func (c CorrectedRules) Choose(x []float32) Choice {
	for i := len(c) - 1; i > 0; i-- {
		if choice := c[i].Choose(x); choice.Engine != Kept {
			return choice
		}
	}
	return c[0].Choose(x)
}
