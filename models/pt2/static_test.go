package pt2

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/nn"
	"github.com/vprof/vprof/models/pt2/export"
	"github.com/vprof/vprof/profiler/aten"
	"github.com/vprof/vprof/profiler/trace"
)

// fixed returns a program as torch.export writes it of an example of so many samples without dynamic shapes.
func fixed(t *testing.T, p *export.Program, batch int) *export.Program {
	original := *p
	original.Nodes = slices.Clone(p.Nodes)
	g, err := newGraph(p)
	require.NoError(t, err)
	c := models.Case{Batch: batch, Settings: models.Settings{}}
	d := findDimensions(p)
	for _, s := range d.settings {
		c.Settings[s.Name] = s.Default
	}
	release, err := c.Release()
	require.NoError(t, err)
	walked := &task{moduleTree: newModules(p), plain: g, sizes: d, c: c}
	require.NoError(t, walked.setBatch(batch))
	out := original
	out.Extra, out.Inputs, out.Nodes = nil, slices.Clone(p.Inputs), original.Nodes
	walked.onArguments = func(n *export.Node, given []aten.Arg) {
		i := 0
		for ; &walked.g.Nodes[i] != n; i++ {
		}
		inputs := slices.Clone(n.Inputs)
		for k := range inputs {
			switch v := given[k].Value.(type) {
			case int64:
				inputs[k].Argument = export.Argument{Kind: export.Integer, Int: v}
			case []int64:
				inputs[k].Argument = export.Argument{Kind: export.List}
				for _, n := range v {
					inputs[k].List = append(inputs[k].List, export.Argument{Kind: export.Integer, Int: n})
				}
			}
		}
		out.Nodes[i].Inputs = inputs
	}
	tape := trace.New(trace.GPU{}, release.Rules(), trace.Options{})
	require.NoError(t, tape.Try(func() { walked.valueShapes(tape, nn.NewTree(walked.Model())) }))
	for i := range out.Inputs {
		in := &out.Inputs[i]
		in.Sizes = slices.Clone(in.Sizes)
		for k := range in.Sizes {
			n, err := in.Sizes[k].Eval(walked.symbols)
			require.NoError(t, err)
			in.Sizes[k] = export.Size{Int: n}
		}
	}
	return &out
}

// A program that was exported with one batch needs at another what the same model needs whose batch was left open: to
// the byte with 4 samples; 1 and 3 may be taken for other numbers in the code.
func TestAProgramOfOneBatchIsGivenOthers(t *testing.T) {
	files, err := filepath.Glob("testdata/*.pt2")
	require.NoError(t, err)
	gpu := trace.GPU{Name: "rtx-3090", Capability: 86, SMs: 82, ThreadsPerSM: 1536, Memory: 25_438_126_080}
	for _, file := range files {
		p, err := readFile(file)
		require.NoError(t, err)
		if findDimensions(p).batch == "" {
			continue
		}
		whole, err := newModel(file, file, "{}", p, nil)
		require.NoError(t, err)
		c := whole.Default
		c.Batch, c.Loss = 6, cmp.Or(c.Loss, "mean")
		want, err := whole.Record(c, gpu, models.Options{})
		require.NoError(t, err)
		for _, batch := range []int{1, 3, 4} {
			p, err := readFile(file)
			require.NoError(t, err)
			m, err := newModel(file, file, "{}", fixed(t, p, batch), nil)
			require.NoError(t, err)
			got, err := m.Record(c, gpu, models.Options{})
			require.NoError(t, err, "%s of %d", file, batch)
			require.InEpsilon(t, want.Program.Peak(), got.Program.Peak(), 0.003, "%s of %d", file, batch)
			require.Contains(t, strings.Join(m.Caveat(c), " "), fmt.Sprintf("with a batch of %d alone", batch))
			if batch == 4 {
				require.Equal(t, want.Program.Instructions, got.Program.Instructions, file)
				require.Equal(t, want.Program.Buffers, got.Program.Buffers, file)
			}
		}
	}
}

// What is half of a batch of 4 may be half of any batch, or 2.
func TestASizeThatIsNoMultipleOfTheBatchIsNotInferred(t *testing.T) {
	p, err := readFile("testdata/own-gpt-8x768.pt2")
	require.NoError(t, err)
	p = fixed(t, p, 4)
	i := slices.IndexFunc(p.Nodes, func(n export.Node) bool { return n.Target == embeddingTarget })
	sliced := export.Node{Target: sliceTarget, Number: 1 << 20, Inputs: []export.NamedArgument{
		{Name: "self", Argument: p.Nodes[i].Outputs[0]},
		{Name: "dim", Argument: export.Argument{Kind: export.Integer}},
		{Name: "start", Argument: export.Argument{Kind: export.Integer}},
		{Name: "end", Argument: export.Argument{Kind: export.Integer, Int: 2}},
	}, Outputs: []export.Argument{{Kind: export.Ref, Ref: int32(p.Values)}}}
	p.Values, p.Names = p.Values+1, append(p.Names, "half")
	p.Nodes = slices.Insert(p.Nodes, i+1, sliced)
	g, err := newGraph(p)
	require.NoError(t, err)
	require.Nil(t, inferBatch(g, 4))
}
