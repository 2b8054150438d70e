package cudnn

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"

	"github.com/vprof/vprof/profiler/trace/cudnn/forest"
)

// generations are the compute capabilities for which there are rules.
var generations = [...]int{75, 80, 86, 89, 90, 120}

// Rules are the decision rules of one release of cuDNN, by architecture. They are safe for concurrent use.
type Rules struct{ architectures map[int]*architecture }

// NewRules returns the rules in a folder of files (see [RuleFile]), each of which is read on first use. An unreadable
// file is a bug in vprof and panics.
func NewRules(files fs.FS) *Rules {
	r := &Rules{map[int]*architecture{}}
	for _, g := range generations {
		r.architectures[g] = newArchitecture(files, g)
	}
	return r
}

// architecture holds the rules of one architecture, each read on first use.
type architecture struct {
	// ensemble has, by operation and element size, functions that decode the rules.
	ensemble [len(kindNames)][len(precisionNames)]func() CorrectedRules
	// device has, by operation, rules for half-precision kernels with few channels, which need no workspace and which
	// cuDNN proposes only on a machine with a GPU.
	device [len(kindNames)]func() *forest.Forest
}

var (
	kindNames      = [...]string{"fprop", "dgrad", "wgrad"}
	precisionNames = [...]string{"fp32", "half"}
)

// RuleFile returns the name of the file with the rules for an operation.
func RuleFile(generation int, operation string, half bool) string {
	precision := precisionNames[0]
	if half {
		precision = precisionNames[1]
	}
	return fmt.Sprintf("sm%d-%s-%s", generation, operation, precision)
}

// CorrectionsFile returns the name of the optional file that corrects such rules. A cuDNN release with nearly the same
// answers as another has only corrections.
func CorrectionsFile(generation int, operation string, half bool) string {
	return RuleFile(generation, operation, half) + "-corrections"
}

// DeviceRuleFile returns the name of the file with rules for kernels that cuDNN proposes only on a GPU machine.
func DeviceRuleFile(generation int, operation string) string {
	return fmt.Sprintf("sm%d-%s-device", generation, operation)
}

// DeviceVote returns the class in device rules that means that the kernel runs, or that it does not.
func DeviceVote(runs bool) int {
	if runs {
		return 1
	}
	return 0
}

func newArchitecture(files fs.FS, generation int) *architecture {
	a := &architecture{}
	for kind, operation := range kindNames {
		for half := range precisionNames {
			a.ensemble[kind][half] = decodeOnce(files, DecodeRules,
				RuleFile(generation, operation, half == 1), CorrectionsFile(generation, operation, half == 1))
		}
		a.device[kind] = decodeOnce(files, func(b []byte) (*forest.Forest, error) {
			cuts, b, err := forest.DecodeCuts(b)
			if err != nil {
				return nil, err
			}
			f, rest, err := cuts.Decode(b)
			return f, cmp.Or(err, checkEnd(rest))
		}, DeviceRuleFile(generation, operation), "")
	}
	return a
}

// checkEnd returns an error if bytes remain after decoding.
func checkEnd(rest []byte) error {
	if len(rest) > 0 {
		return fmt.Errorf("%d bytes follow the end of the rules", len(rest))
	}
	return nil
}

// decodeOnce returns a function that decodes a file on first use, with the content of the optional file behind it.
func decodeOnce[T any](files fs.FS, decode func([]byte) (T, error), name, behind string) func() T {
	return sync.OnceValue(func() T {
		b, err := fs.ReadFile(files, name)
		if err == nil && behind != "" {
			more, missing := fs.ReadFile(files, behind)
			if b = append(b, more...); !errors.Is(missing, fs.ErrNotExist) {
				err = missing
			}
		}
		if err == nil {
			var v T
			if v, err = decode(b); err == nil {
				return v
			}
		}
		panic(fmt.Sprintf("cudnn: %s: %v", name, err))
	})
}

func engineNamed(name string) (Engine, error) {
	i := slices.Index(engineNames[:], name)
	if i < 0 {
		return 0, fmt.Errorf("unknown engine %q", name)
	}
	return Engine(i), nil
}
