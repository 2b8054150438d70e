package guides

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/vprof/vprof/internal/bytesize"
	"github.com/vprof/vprof/models"
)

// Conditions are the circumstances for which a guide gives a value. The guide does not state absent ones: the value
// then holds for every stage and every GPU, and otherwise for the system as its authors train it.
type Conditions struct {
	Stage         string           `yaml:"stage"`
	Batch         Range            `yaml:"batch"`
	AMP           *models.Autocast `yaml:"amp"`
	Checkpointing *bool            `yaml:"checkpointing"`
	// Accumulate is no condition in [Matching]: all guides state that it does not change memory.
	Accumulate int             `yaml:"accumulate"`
	Settings   models.Settings `yaml:"settings"`
	// Dataset is training data on the GPU.
	Dataset Value `yaml:"dataset"`
	// GPU is a GPU of the catalog.
	GPU string `yaml:"gpu"`
	// Compile is torch.compile.
	Compile bool `yaml:"compile"`
}

func (k Conditions) check() error {
	switch {
	case k.Accumulate < 0:
		return fmt.Errorf("accumulate: %d: need 0 or more micro-batches", k.Accumulate)
	case k.Dataset.Share:
		return errors.New("dataset: need a size in bytes, not a percentage")
	}
	return nil
}

// String lists the conditions except the batch size.
func (k Conditions) String() string {
	var words []string
	if k.Stage != "" {
		words = append(words, "stage "+k.Stage)
	}
	switch {
	case k.AMP == nil:
	case *k.AMP == models.NoAutocast:
		words = append(words, "fp32")
	default:
		words = append(words, k.AMP.String())
	}
	if on := k.Checkpointing; on != nil {
		words = append(words, map[bool]string{true: "checkpointing", false: "no checkpointing"}[*on])
	}
	switch {
	case k.Accumulate == 1:
		words = append(words, "1 micro-batch")
	case k.Accumulate > 1:
		words = append(words, fmt.Sprintf("%d micro-batches", k.Accumulate))
	}
	words = append(words, k.Settings.Assignments()...)
	if k.Dataset.High > 0 {
		words = append(words, bytesize.Format(int64(k.Dataset.High))+" of data on the GPU")
	}
	if k.Compile {
		words = append(words, "torch.compile")
	}
	if k.GPU != "" {
		words = append(words, k.GPU)
	}
	return strings.Join(words, ", ")
}

// ApplyTo returns the case with the values that the conditions have. Of a range of batch sizes it uses the first.
func (k Conditions) ApplyTo(c models.Case) models.Case {
	c.Stage = cmp.Or(k.Stage, c.Stage)
	c.Batch = cmp.Or(k.Batch.From, c.Batch)
	if k.AMP != nil {
		c.AMP = *k.AMP
	}
	if k.Checkpointing != nil {
		c.Checkpointing = *k.Checkpointing
	}
	c.Accumulate = cmp.Or(k.Accumulate, c.Accumulate)
	c.Dataset = cmp.Or(int64(k.Dataset.High), c.Dataset)
	c.Compile = c.Compile || k.Compile
	if len(k.Settings) > 0 {
		settings := models.Settings{}
		maps.Copy(settings, c.Settings)
		maps.Copy(settings, k.Settings)
		c.Settings = settings
	}
	return c
}

func (k Conditions) holdFor(m models.Model, c models.Case, gpu string) bool {
	if k.Compile || c.Batch < k.Batch.From || c.Batch > k.Batch.To || k.GPU != "" && k.GPU != gpu {
		return false
	}
	stated, err := m.Complete(k.ApplyTo(m.Default))
	if k.Stage == "" {
		stated.Stage = c.Stage
	}
	for _, s := range m.Settings {
		if s.Inert == "" && stated.Settings[s.Name] != c.Settings[s.Name] {
			return false
		}
	}
	return err == nil && stated.Stage == c.Stage && stated.AMP == c.AMP && stated.Checkpointing == c.Checkpointing &&
		stated.Optimizer == c.Optimizer && c.LoRA == nil && stated.Dataset == c.Dataset
}

// specificity returns the number of stated conditions; of two values that hold, the one with more is used.
func (k Conditions) specificity() int {
	n := len(k.Settings)
	if k.Batch.From > 0 && k.Batch.From == k.Batch.To {
		n += 2 // a table's own row
	}
	for _, stated := range []bool{
		k.Stage != "", k.Batch.From > 0, k.AMP != nil, k.Checkpointing != nil, k.Dataset.High > 0, k.GPU != "",
	} {
		if stated {
			n++
		}
	}
	return n
}

// Match is a claim that holds for a case.
type Match struct {
	Guide Guide
	Claim Claim
}

// MatchingClaims returns the claims about a step's total memory whose conditions hold for a complete case of the model
// on a GPU of the catalog, the most specific first.
func MatchingClaims(m models.Model, c models.Case, gpu string) []Match {
	var found []Match
	for _, g := range GuidesFor(m.Name) {
		for _, claim := range g.Claims {
			if claim.Of.IsTotal() && claim.Baseline == nil && claim.IsAbout(m.Name) && claim.holdFor(m, c, gpu) {
				found = append(found, Match{g, claim})
			}
		}
	}
	slices.SortStableFunc(found, func(a, b Match) int {
		return cmp.Compare(b.Claim.specificity(), a.Claim.specificity())
	})
	return found
}
