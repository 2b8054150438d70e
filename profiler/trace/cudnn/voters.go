package cudnn

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/vprof/vprof/profiler/trace/cudnn/forest"
)

// Voters choose an engine with its knobs in two votes, as cuDNN's heuristics do:
// first on the manner, that is an engine and its tile, then, if that manner
// splits the reduction, on how often.
type Voters struct {
	manners *forest.Forest
	choices []Choice // by manner, without splits
	splits  []splits // by manner
}

// splits vote on how often a manner splits the reduction; without votes it does
// not.
type splits struct {
	votes  *forest.Forest
	counts []int64 // by class of the votes
}

// NewVoters joins the votes on manners with those on their splits, whose classes
// are counts. A manner is named as a choice without splits is; that of a kernel
// that splits the reduction has a number behind it, since each has habits of its
// own: "copies", "copies/64x128@3".
func NewVoters(manners *forest.Forest, counts map[string]*forest.Forest) (*Voters, error) {
	v := &Voters{
		manners: manners,
		choices: make([]Choice, len(manners.Classes)),
		splits:  make([]splits, len(manners.Classes)),
	}
	for i, manner := range manners.Classes {
		name, _, split := strings.Cut(manner, "@")
		var err error
		if v.choices[i], err = parseChoice(name); err != nil {
			return nil, err
		}
		if v.choices[i].Splits > 0 {
			return nil, fmt.Errorf("manner %q: its splits are voted on apart", manner)
		}
		if !split {
			continue
		}
		if v.splits[i], err = newSplits(counts[manner]); err != nil {
			return nil, fmt.Errorf("splits of %s: %w", manner, err)
		}
	}
	return v, nil
}

func newSplits(votes *forest.Forest) (s splits, err error) {
	if votes == nil {
		return s, fmt.Errorf("no votes")
	}
	s = splits{votes, make([]int64, len(votes.Classes))}
	for i, c := range votes.Classes {
		if s.counts[i], err = strconv.ParseInt(c, 10, 64); err != nil || s.counts[i] < 1 {
			return s, fmt.Errorf("count %q: want a number above zero", c)
		}
	}
	return s, nil
}

// Choose votes on a case with these features (Study.Features).
func (v *Voters) Choose(x []float32) Choice {
	manner := v.manners.Vote(x)
	choice := v.choices[manner]
	if s := &v.splits[manner]; s.votes != nil {
		choice.Splits = s.counts[s.votes.Vote(x)]
	}
	return choice
}

// Append appends the voters in their compact form: the votes on manners, and
// those on splits in the order of the manners that have them.
func (v *Voters) Append(b []byte) []byte {
	b = v.manners.Append(b)
	for _, s := range v.splits {
		if s.votes != nil {
			b = s.votes.Append(b)
		}
	}
	return b
}

// decodeVoters reads what Append wrote.
func decodeVoters(b []byte) (*Voters, error) {
	manners, b, err := forest.Decode(b, numFeatures)
	if err != nil {
		return nil, err
	}
	counts := map[string]*forest.Forest{}
	for _, manner := range manners.Classes {
		if !strings.Contains(manner, "@") {
			continue
		}
		if counts[manner], b, err = forest.Decode(b, numFeatures); err != nil {
			return nil, fmt.Errorf("splits of %s: %w", manner, err)
		}
	}
	if err := ended(b); err != nil {
		return nil, err
	}
	return NewVoters(manners, counts)
}
