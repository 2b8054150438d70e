package cudnn_test

import (
	"fmt"
	"math"
	"sort"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/profiler/trace/cudnn"
	"github.com/vprof/vprof/profiler/trace/cudnn/vectors"
)

// recorded reads the vectors once for all tests.
var recorded = sync.OnceValues(func() ([]vectors.Vector, error) {
	return vectors.Read("testdata/conv-workspaces.jsonl.gz")
})

// score sums up how close the model comes on a set of cases.
type score struct {
	cases, exact, close int
	want, off, gap      float64 // bytes: recorded, sum of |error|, signed error
}

func (s *score) add(want, have []int64) {
	w, h := largest(want), largest(have)
	s.cases++
	if equal(want, have) {
		s.exact++
	}
	diff := math.Abs(float64(h - w))
	if diff <= 0.02*float64(w)+64<<10 {
		s.close++
	}
	s.want += float64(w)
	s.off += diff
	s.gap += float64(h - w)
}

func (s *score) exactShare() float64 { return float64(s.exact) / float64(s.cases) }
func (s *score) closeShare() float64 { return float64(s.close) / float64(s.cases) }

// byteError is the sum of errors over the sum of recorded bytes.
func (s *score) byteError() float64 { return s.off / max(s.want, 1) }
func (s *score) bias() float64      { return s.gap / max(s.want, 1) }

func largest(ws []int64) int64 {
	var n int64
	for _, w := range ws {
		n = max(n, w)
	}
	return n
}

func equal(a, b []int64) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// group scores the held-out cases that keep says yes to, by the key it returns.
func group(t *testing.T, key func(v *vectors.Vector, d cudnn.Direction) (string, bool)) map[string]*score {
	t.Helper()
	vs, err := recorded()
	require.NoError(t, err)
	scores := map[string]*score{}
	for i := range vs {
		v := &vs[i]
		for d := cudnn.Forward; d <= cudnn.GradWeight; d++ {
			k, ok := key(v, d)
			if !ok {
				continue
			}
			if scores[k] == nil {
				scores[k] = &score{}
			}
			scores[k].add(v.Workspaces[d], cudnn.Workspaces(v.Config, d, v.Board))
		}
	}
	return scores
}

func report(t *testing.T, title string, scores map[string]*score) {
	t.Helper()
	keys := make([]string, 0, len(scores))
	for k := range scores {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n%-44s %7s %7s %7s %7s %7s\n", title, "", "cases", "exact", "close", "error", "bias")
	for _, k := range keys {
		s := scores[k]
		fmt.Fprintf(&b, "%-44s %7d %6.1f%% %6.1f%% %6.1f%% %+6.1f%%\n", k, s.cases,
			100*s.exactShare(), 100*s.closeShare(), 100*s.byteError(), 100*s.bias())
	}
	t.Log("\n" + b.String())
}

func source(v *vectors.Vector) string {
	if v.Reference {
		return "models"
	}
	return "grid"
}

func precision(v *vectors.Vector) string {
	if v.Config.DType == cudnn.F32 {
		return "fp32"
	}
	return "half"
}

func part(v *vectors.Vector) string {
	if v.Held {
		return "held"
	}
	return "seen"
}

// TestHeldOutAccuracy reports how well the rules do on geometries they were not
// found on, and holds them to what they achieved.
func TestHeldOutAccuracy(t *testing.T) {
	report(t, "all contiguous, old and new geometries", group(t, func(v *vectors.Vector, d cudnn.Direction) (string, bool) {
		return fmt.Sprintf("%s %s %s %v", source(v), part(v), precision(v), d), v.Config.Layout == cudnn.Contiguous && v.Board.Capability >= 80
	}))
	report(t, "held out, contiguous, by board", group(t, func(v *vectors.Vector, d cudnn.Direction) (string, bool) {
		return fmt.Sprintf("%s %s %v", source(v), v.Board.Name, d), v.Config.Layout == cudnn.Contiguous && v.Held
	}))
	report(t, "held out, channels last", group(t, func(v *vectors.Vector, d cudnn.Direction) (string, bool) {
		return fmt.Sprintf("%s %v", precision(v), d), v.Config.Layout != cudnn.Contiguous && v.Held
	}))
}
