package lifetimes

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models/pt2/export"
)

func TestStatementsSayWhatTheyBind(t *testing.T) {
	for line, want := range map[string]statement{
		"x = self.norm(x)":                {names: []string{"x"}, uses: []string{"x"}, single: true},
		"x = x + self.drop(self.attn(x))": {names: []string{"x"}, uses: []string{"x"}},
		"q, k, v = qkv.unbind(0)": {
			names: []string{"q", "k", "v"}, uses: []string{"qkv"},
			single: true,
		},
		"h: Tensor = f(a, b=c)":                    {names: []string{"h"}, uses: []string{"a", "c"}, single: true},
		"x += shortcut":                            {names: []string{"x"}, uses: []string{"shortcut"}},
		"return self.fc(x)":                        {},
		"features.append(self.conv(x))":            {keeps: true},
		"self.cache = self.conv(x)":                {keeps: true, uses: []string{"x"}, single: true},
		").expand(b, -1)":                          {goesOn: true},
		"if x.shape[1] == 3:":                      {},
		"x = torch.cat((a, b), dim=1)  # all == 1": {names: []string{"x"}, uses: []string{"a", "b"}},
	} {
		got := parse(line)
		if !want.single {
			got.single = false // says nothing where more than one call stands
		}
		require.Equal(t, want, got, line)
	}
}

// traced is a call: the values that it takes, and the frames of its trace, "module/line: source".
type traced struct {
	takes  []int32
	frames []string
}

func program(calls []traced) *export.Program {
	p := &export.Program{Values: len(calls) + 1, Inputs: []export.Input{{Role: export.UserInput, Value: 0}}}
	for i, c := range calls {
		n := export.Node{
			Target: "f", Number: int32(i),
			Outputs: []export.Argument{{Kind: export.Ref, Ref: int32(i + 1)}},
		}
		for _, v := range c.takes {
			n.Inputs = append(n.Inputs, export.NamedArgument{Argument: export.Argument{Kind: export.Ref, Ref: v}})
		}
		for d, f := range c.frames {
			where, source, _ := strings.Cut(f, ": ")
			module, line, _ := strings.Cut(where, "/")
			number, err := strconv.Atoi(line)
			if err != nil {
				panic(err)
			}
			n.Trace = append(n.Trace, export.Frame{
				File: fmt.Sprint("m", d, ".py"), Line: number, Func: "forward",
				Source: source,
			})
			n.Stack = append(n.Stack, module)
		}
		n.Module = n.Stack[len(n.Stack)-1]
		p.Nodes = append(p.Nodes, n)
	}
	p.Results = []export.Result{{Value: int32(len(calls))}}
	return p
}

func dies(p *export.Program) [][]int32 {
	out := make([][]int32, len(p.Nodes))
	for i := range p.Nodes {
		out[i] = p.Nodes[i].Dies
	}
	return out
}

func TestNamesHoldUntilTheyAreBoundAnew(t *testing.T) {
	p := program([]traced{
		{[]int32{0}, []string{"/1: y = f(x)"}},
		{[]int32{1}, []string{"/2: z = f(y)"}}, // y has its name until line 4
		{[]int32{2}, []string{"/3: z = f(z)"}},
		{[]int32{3}, []string{"/4: y = f(z)"}},
		{[]int32{4}, []string{"/5: return f(y)"}},
	})
	require.NoError(t, Find(p))
	require.Equal(t, [][]int32{nil, nil, {2}, {1}, {4, 3}}, dies(p))
}

func TestTemporariesGoOnceTheyAreUsed(t *testing.T) {
	p := program([]traced{
		{[]int32{0}, []string{"/1: y = f(g(x) + h(x))"}},
		{[]int32{0}, []string{"/1: y = f(g(x) + h(x))"}},
		{[]int32{1, 2}, []string{"/1: y = f(g(x) + h(x))"}},
		{[]int32{3}, []string{"/1: y = f(g(x) + h(x))"}},
		{[]int32{4}, []string{"/2: return f(y)"}},
	})
	require.NoError(t, Find(p))
	require.Equal(t, [][]int32{nil, nil, {1, 2}, {3}, {4}}, dies(p))
}

func TestCallsOfModulesHoldTheirArguments(t *testing.T) {
	call := "/1: y = self.block(f(x))"
	p := program([]traced{
		{[]int32{0}, []string{call}},
		{[]int32{1}, []string{call, "block/7: x = f(x)"}},
		{[]int32{2}, []string{call, "block/8: return f(x)"}},
		{[]int32{3}, []string{"/2: return f(y)"}},
	})
	require.NoError(t, Find(p))
	require.Equal(t, [][]int32{nil, nil, {2, 1}, {3}}, dies(p))
}

func TestWhatWasObservedWins(t *testing.T) {
	p := program([]traced{
		{[]int32{0}, []string{"/1: y = f(x)"}},
		{[]int32{1}, []string{"/2: y = f(y)"}},
		{[]int32{2}, []string{"/3: return f(y)"}},
	})
	p.Names = []string{"x", "a", "b", "c"}
	p.Extra = &export.Extra{Dies: []export.Death{
		{Node: 0, Values: []string{"b"}},
		{Node: 2, Values: []string{"a", "c"}},
	}}
	require.NoError(t, Find(p))
	require.Equal(t, [][]int32{nil, nil, {2, 1}}, dies(p), "b is used after node 0, and c is a result")
	for _, d := range []export.Death{{Node: 9, Values: []string{"a"}}, {Node: 1, Values: []string{"q"}}} {
		p.Extra.Dies = []export.Death{d}
		require.ErrorContains(t, Find(p), "extra/vprof.json")
	}
}

func FuzzStatement(f *testing.F) {
	f.Add("x, y = self.f(x)[0] + torch.cat([a, b], dim=1)  # 'comment'")
	f.Fuzz(func(_ *testing.T, text string) { parse(text) })
}

// A function's several results get the statement's names, also names that an earlier call of
// its made: they live as long as the names do, and not to their last use.
func TestSeveralResultsOfAFunctionHaveTheirNames(t *testing.T) {
	p := program([]traced{
		{[]int32{0}, []string{"m/1: x = self.norm(x)"}},    // 1
		{[]int32{1}, []string{"m/2: q, k = rotate(x)"}},    // 2 becomes q
		{[]int32{1}, []string{"m/2: q, k = rotate(x)"}},    // 3 goes with the next call
		{[]int32{3}, []string{"m/2: q, k = rotate(x)"}},    // 4 becomes k
		{[]int32{2, 4}, []string{"m/3: y = attend(q, k)"}}, // 5
		{[]int32{5}, []string{"m/4: y = self.dense(y)"}},   // 6
		{[]int32{6}, []string{"m/5: y = self.out(y)"}},     // 7
	})
	require.NoError(t, Find(p))
	for i, n := range p.Nodes[:len(p.Nodes)-1] {
		require.NotContains(t, n.Dies, int32(2), i)
		require.NotContains(t, n.Dies, int32(4), i)
	}
	require.Contains(t, p.Nodes[3].Dies, int32(3))
}
