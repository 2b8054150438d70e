package main

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/all"
	"github.com/vprof/vprof/profiler/trace/cudnn"
	"github.com/vprof/vprof/profiler/trace/cudnn/query"
)

func drawerOf(seed uint64) drawer { return drawer{Rand: rand.New(rand.NewPCG(seed, 0))} }

func TestDrawnQuestionsAreConvolutionsThatExist(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		d := drawerOf(rapid.Uint64().Draw(t, "seed"))
		for range 20 {
			q := d.question()
			c := q.Config
			require.LessOrEqual(t, q.Operation, cudnn.GradWeight)
			require.LessOrEqual(t, c.DType, cudnn.BF16)
			require.Equal(t, q.String(), query.NewQuestion(c, q.Operation).String(), "neither transposed nor 1-D")
			require.Positive(t, min(c.N, c.Ci, c.Co, c.Groups), q)
			require.Zero(t, c.Ci%c.Groups, q)
			require.Zero(t, c.Co%c.Groups, q)
			if c.Ci == 1 {
				require.Equal(t, cudnn.Contiguous, c.Layout, q)
			}
			x, w, y := c.N*c.Ci, c.Ci/c.Groups*c.Co, c.N*c.Co
			for i := range c.Dim {
				require.Positive(t, min(c.In[i], c.K[i], c.Out[i], c.Stride[i], c.Dilation[i]), q)
				require.GreaterOrEqual(t, c.Pad[i], int64(0), q)
				// The last window ends inside the padded image, and a further one would not.
				end := (c.Out[i]-1)*c.Stride[i] + c.Dilation[i]*(c.K[i]-1) + 1
				room := c.In[i] + 2*c.Pad[i]
				require.LessOrEqual(t, end, room, q)
				require.Greater(t, end+c.Stride[i], room, q)
				x, w, y = x*c.In[i], w*c.K[i], y*c.Out[i]
			}
			require.LessOrEqual(t, max(x, w, y), d.most(), q)
		}
	})
}

func TestDrawsReachAllThatNetworksHave(t *testing.T) {
	seen := map[string]bool{}
	note := func(what string, is bool) { seen[what] = seen[what] || is }
	d := drawerOf(1)
	for range 2000 {
		q := d.question()
		c := q.Config
		seen[q.Operation.String()] = true
		seen[c.DType.String()] = true
		note("contiguous", c.Layout == cudnn.Contiguous)
		note("channels last", c.Layout == cudnn.ChannelsLast)
		note("signals", c.Dim == 2 && c.In[0] == 1)
		note("images", c.Dim == 2 && c.In[0] > 1)
		note("volumes", c.Dim == 3)
		note("one group", c.Groups == 1)
		note("groups", c.Groups > 1 && c.Groups < c.Ci)
		note("depthwise", c.Groups > 1 && c.Groups == c.Ci)
		note("stride", c.Stride[0] > 1)
		note("dilation", c.Dilation[0] > 1)
		note("padding", c.Pad[0] > 0)
		note("kernels with unlike sides", c.In[0] > 1 && c.K[0] != c.K[1])
		note("first layers", c.Ci == 3)
		note("small tensors", elements(&c) < drawer{small: true}.most())
		note("large tensors", elements(&c) > drawer{small: true}.most())
	}
	require.Len(t, seen, 3+3+15)
	for what, is := range seen {
		require.True(t, is, what)
	}
}

// lines returns drawn questions as text.
func lines(t *testing.T, n int, seed uint64) []string {
	drawn, err := chosen(false, nil, "", "", n, seed)
	require.NoError(t, err)
	written := make([]string, len(drawn))
	for i, q := range drawn {
		written[i] = q.String()
	}
	return written
}

func TestASeedStandsForItsQuestions(t *testing.T) {
	first := lines(t, 50, 1)
	require.Len(t, first, 50)
	require.Equal(t, first, lines(t, 50, 1))
	require.Equal(t, first[:10], lines(t, 10, 1))
	require.NotEqual(t, first, lines(t, 50, 2))
	require.Equal(t, drawerOf(1).question().String(), first[0])
}

// askedBy returns the questions of one training step.
func askedBy(t *testing.T, c models.Case) map[query.Question]bool {
	m, err := all.Models().Lookup(c.Model)
	require.NoError(t, err)
	asked := map[query.Question]bool{}
	require.NoError(t, record(m, c, asked))
	return asked
}

func TestModelsAskAboutTheirLayersInAllDirectionsAndBothLayouts(t *testing.T) {
	stem := cudnn.Config{
		Dim: 2, N: 32, Ci: 3, Co: 64, In: [3]int64{224, 224}, K: [3]int64{7, 7}, Stride: [3]int64{2, 2},
		Pad: [3]int64{3, 3}, Dilation: [3]int64{1, 1}, Groups: 1, DType: cudnn.F16,
	}
	asked := askedBy(t, models.Case{Model: "resnet50", Stage: "full", Batch: 32, AMP: "fp16"})
	for d := cudnn.Forward; d <= cudnn.GradWeight; d++ {
		for _, stem.Layout = range []cudnn.Layout{cudnn.Contiguous, cudnn.ChannelsLast} {
			require.True(t, asked[query.NewQuestion(stem, d)], "%v, layout %d", d, stem.Layout)
		}
	}
	for q := range asked {
		require.Equal(t, int64(32), q.Config.N, q)
		require.Equal(t, cudnn.F16, q.Config.DType, q)
	}
}

func TestCasesThatAModelRefusesAskNothing(t *testing.T) {
	require.NotEmpty(t, askedBy(t, models.Case{Model: "resnet18", Batch: 32}))
	require.Empty(t, askedBy(t, models.Case{Model: "resnet18", Stage: "none such", Batch: 32}))
	require.Empty(t, askedBy(t, models.Case{Model: "resnet18", Batch: 32, Settings: models.Settings{"image-size": 1}}))
}

func TestModelsAreAskedInAllBatchesAndPrecisionsWithEachSettingHalvedAndDoubled(t *testing.T) {
	m := models.Model{
		Name: "made-up", Stages: []string{"head", "full"}, Default: models.Case{Stage: "head"},
		Settings: []models.Setting{
			{Name: "side", Default: 100, Min: 1, Max: 1000},
			{Name: "bounded", Default: 100, Min: 60, Max: 150},
			{Name: "inert", Default: 100, Min: 1, Max: 1000, Inert: "no tensor has it"},
		},
	}
	cases := casesOf(m, batches)
	for _, settings := range []models.Settings{nil, {"side": 50}, {"side": 200}} {
		for _, amp := range models.AutocastPrecisions() {
			for _, batch := range batches {
				require.Contains(t, cases, models.Case{
					Model: "made-up", Stage: "full", Batch: batch, AMP: amp,
					Settings: settings,
				})
			}
		}
	}
	require.Len(t, cases, 3*len(models.AutocastPrecisions())*len(batches))

	m.Stages = []string{"head", "all"}
	require.Equal(t, "head", casesOf(m, batches)[0].Stage, "the default, where no stage is called full")
}

func TestOneChannelAndOneRowHaveOneLayout(t *testing.T) {
	both := []cudnn.Layout{cudnn.Contiguous, cudnn.ChannelsLast}
	require.Equal(t, both, layoutsOf(cudnn.Config{Dim: 2, Ci: 3}))
	require.Equal(t, both[:1], layoutsOf(cudnn.Config{Dim: 2, Ci: 1}))
	require.Equal(t, both[:1], layoutsOf(cudnn.Config{Dim: 1, Ci: 3}))
}

func TestListsAreDrawnFromAtAnyBatch(t *testing.T) {
	list := filepath.Join(t.TempDir(), "libraries.txt")
	text := "2 0 1 3 64 1 224 224 7 7 2 2 3 3 1 1 112 112\n1 0 4 8 8 8 100 5 1 2 1 100\n3 1 1 16 8 1 8 8 8 2 2 2 2 " +
		"2 2 0 0 0 1 1 1 16 16 16\n"
	require.NoError(t, os.WriteFile(list, []byte(text), 0o600))
	asked, err := chosen(false, nil, list, "2,4", 500, 1)
	require.NoError(t, err)
	require.Len(t, asked, 500)
	seen := map[[3]int64]bool{}
	for _, q := range asked {
		seen[[3]int64{int64(q.Config.Dim), q.Config.N, q.Config.In[0]}] = true
	}
	require.Equal(t, map[[3]int64]bool{
		{2, 2, 224}: true, {2, 4, 224}: true,
		{2, 8, 1}: true, {2, 16, 1}: true, // a 1-d convolution over four windows for each sample
		{3, 2, 16}: true, {3, 4, 16}: true, // from the transposed convolution's output to its input
	}, seen)
}

func TestListsThatAreNoneAreRefused(t *testing.T) {
	for _, text := range []string{"", "2 0 1 3", "4 0 1 3 64 1", "2 0 1 3 64 2 1 1 1 1 1 1 0 0 1 1 1 1", "x"} {
		list := filepath.Join(t.TempDir(), "libraries.txt")
		require.NoError(t, os.WriteFile(list, []byte(text), 0o600))
		_, err := chosen(false, nil, list, "", 1, 1)
		require.Error(t, err, text)
	}
	_, err := chosen(false, nil, "", "8,none", 1, 1)
	require.ErrorContains(t, err, "none")
}
