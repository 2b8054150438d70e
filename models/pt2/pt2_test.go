package pt2_test

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/pt2"
	"github.com/vprof/vprof/models/pt2/export"
	"github.com/vprof/vprof/profiler/program"
	"github.com/vprof/vprof/profiler/trace"
)

var testGPU = trace.GPU{Name: "rtx-3090", Capability: 86, SMs: 82, ThreadsPerSM: 1536, Memory: 25_438_126_080}

func open(t *testing.T, name string) models.Model {
	m, err := pt2.Open("testdata/" + name + ".pt2")
	require.NoError(t, err)
	return m
}

func record(t *testing.T, m models.Model, c models.Case) *program.Program {
	r, err := m.Record(c, testGPU, models.Options{})
	require.NoError(t, err)
	require.NoError(t, r.Program.Validate())
	return r.Program
}

// TestResultsDescribeModelsWhole records each model of the test data from its file, and from what a result has of it.
func TestResultsDescribeModelsWhole(t *testing.T) {
	files, err := filepath.Glob("testdata/*.pt2")
	require.NoError(t, err)
	for _, f := range files {
		m, err := pt2.Open(f)
		require.NoError(t, err)
		again, err := pt2.Source(nil).Restore(m.Name, m.Description.Text())
		require.NoError(t, err)
		c := models.Case{Batch: 2, AMP: "bf16"}
		require.Equal(t, record(t, m, c), record(t, again, c), f)
		require.Equal(t, m.Default, again.Default)
		require.Equal(t, m.Settings, again.Settings)
	}
}

func TestParametersAreCountedOnce(t *testing.T) {
	for name, want := range map[string]int64{
		"timm-resnet18": 11689512, "timm-vit_small_patch16_224": 22050664, "hf-gpt2": 124439808,
		"hf-bart-base": 139420416, "hf-t5-small": 60506624, "hf-qwen3-tiny": 57943552,
	} {
		m := open(t, name)
		trainer, err := m.Build(m.Default)
		require.NoError(t, err)
		require.Equal(t, want, trainer.Counts().Total, name)
	}
}

func TestEverythingIsFreedButWhatStays(t *testing.T) {
	for _, name := range []string{
		"timm-resnet18", "hf-gpt2", "timm-swin_tiny_patch4_window7_224",
		"diffusers-unet-sd15-small",
	} {
		for _, checkpointing := range []bool{false, true} {
			m := open(t, name)
			if checkpointing && m.Default.Blocks == "" {
				continue
			}
			p := record(t, m, models.Case{Batch: 2, AMP: "fp16", Checkpointing: checkpointing})
			alive := map[uint32]bool{}
			var ends []int64
			for in, now := range p.Live() {
				switch in.Kind {
				case program.Alloc:
					alive[in.Arg] = true
				case program.Free:
					delete(alive, in.Arg)
				case program.MarkPhase:
					if p.Phases[in.Arg].Name == "step_end" {
						ends = append(ends, now)
					}
				}
			}
			for b := range alive {
				require.NotContains(t, []program.Class{program.Gradients, program.Activations},
					p.Buffers[b].Class, name)
			}
			require.Len(t, ends, 2)
		}
	}
}

func TestCasesThatCannotBeAreRefused(t *testing.T) {
	for _, c := range []struct {
		model string
		c     models.Case
		want  string
	}{
		{"timm-resnet18", models.Case{Loss: "hinge"}, `no loss "hinge"; use one of cross-entropy, token-cross-entropy, mse, bce, l1, sum, output`},
		{"timm-resnet18", models.Case{Loss: "output"}, "loss: the loss has 2 dimensions, and a scalar is needed; name another with --loss, such as sum"},
		{"hf-gpt2", models.Case{Loss: "cross-entropy"}, "loss: cross entropy needs an output with two dimensions, the batch and the classes, and this one has 0; choose another loss or output with --loss LOSS:NAME"},
		{"hf-gpt2", models.Case{Output: "hidden", Loss: "sum"}, `no output "hidden"; its outputs are loss, logits`},
		{"timm-resnet18", models.Case{Batch: 70000}, "exported for batches from 2 to 65536"},
		{"timm-resnet18", models.Case{Freeze: "head.*"}, `no parameter has a name like "head.*"; the names look like fc.bias`},
		{"timm-resnet18", models.Case{Freeze: "*"}, "all parameters are frozen"},
		{
			"timm-resnet18",
			models.Case{Checkpointing: true, Blocks: "stages.*"},
			`"stages.*"; its modules have names like layer3.0.conv1`,
		},
		{"timm-resnet18", models.Case{Settings: models.Settings{"seq-len": 8}}, "no such setting"},
		{
			"hf-qwen3-tiny",
			models.Case{LoRA: &models.LoRA{Rank: 8, Targets: []string{"query"}}},
			"no linear layer is called query; there are down_proj, gate_proj",
		},
		{"timm-resnet18", models.Case{Stage: "head"}, "stage: the model has no freeze stage \"head\"; use one of full"},
	} {
		m := open(t, c.model)
		_, err := m.Record(c.c, testGPU, models.Options{})
		var wrong *models.CaseError
		require.ErrorAs(t, err, &wrong, "%+v", c.c)
		require.ErrorContains(t, err, c.want)
	}
}

func TestLossesDifferInWhatTheyAllocate(t *testing.T) {
	m := open(t, "own-gpt-8x768")
	require.Equal(t, pt2.CrossEntropy, m.Default.Loss)
	for _, loss := range pt2.Losses() {
		if loss == pt2.Output {
			continue
		}
		p := record(t, m, models.Case{Batch: 2, Loss: loss})
		require.NotEmpty(t, p.Instructions)
	}
	m = open(t, "hf-gpt2")
	require.Equal(t, pt2.Output, m.Default.Loss)
	record(t, m, models.Case{Batch: 2, Loss: pt2.TokenCrossEntropy, Output: "logits"})
}

func TestAdaptersAreTrainedInsteadOfTheModel(t *testing.T) {
	m := open(t, "hf-qwen3-tiny")
	c := models.Case{Batch: 2, LoRA: &models.LoRA{Rank: 8, Dropout: 0.1}}
	c, err := m.Complete(c)
	require.NoError(t, err)
	trainer, err := m.Build(c)
	require.NoError(t, err)
	const layers, width, inner, query, key = 8, 512, 1536, 512, 256
	want := int64(8 * layers * (width + query + 2*(width+key) + query + width + 3*(width+inner)))
	require.Equal(t, want, trainer.Counts().Trainable)
	require.Less(t, record(t, m, c).LeftBytes(), record(t, m, models.Case{Batch: 2}).LeftBytes()/2)
	c.AMP, c.Checkpointing = "bf16", true
	record(t, m, c)
}

func TestSitesNameModulesAndLines(t *testing.T) {
	p := record(t, open(t, "timm-resnet18"), models.Case{Batch: 2})
	var forward, backward bool
	for _, s := range p.Sites {
		forward = forward || s.Module == "layer1.0.conv1" && s.Where == "resnet.py:146:forward" && s.Node == ""
		backward = backward || s.Module == "layer1.0.conv1" && s.Where != "" && s.Node == "ConvolutionBackward0"
	}
	require.True(t, forward)
	require.True(t, backward)
}

func TestUnknownOperatorsAreNamedAllAtOnce(t *testing.T) {
	e := &pt2.UnknownOperatorsError{File: "m.pt2", Operators: []*pt2.UnknownOperator{
		{Target: "torch.ops.aten.nonzero.default", Count: 2, Module: "head", Line: "m.py:3:forward"},
		{Target: "torch.ops.mine.op.default", Count: 1},
	}}
	require.True(t, e.Usage())
	require.Equal(t, 1, strings.Count(e.Error(), "m.pt2"))
	require.ErrorContains(t, e,
		"aten.nonzero.default (2 times, first in head, m.py:3:forward); mine.op.default (1 times)")
}

func BenchmarkOpen(b *testing.B) {
	for b.Loop() {
		_, err := pt2.Open("testdata/timm-swin_tiny_patch4_window7_224.pt2")
		require.NoError(b, err)
	}
}

func TestCustomFunctionsAreWarnedOf(t *testing.T) {
	m := open(t, "timm-resnet18")
	require.Empty(t, m.Caveats(m.Default))
	clip := export.CustomFunction{Name: "mine.Clip", Line: "m.py:17"}
	captured := changed(t, "timm-resnet18", func(p *export.Program) {
		p.Extra = &export.Extra{CustomFunctions: []export.CustomFunction{clip, clip}}
	})
	caveats := captured.Caveats(captured.Default)
	require.Len(t, caveats, 1)
	require.Contains(t, caveats[0], "mine.Clip (m.py:17) is a custom autograd.Function")
}

// What ran under reentrant checkpointing alone is planned so.
func TestCapturedCheckpointingIsTheDefault(t *testing.T) {
	for _, c := range []struct {
		extra export.Extra
		how   models.Recompute
	}{
		{export.Extra{Checkpointed: []string{"layer1"}}, ""},
		{export.Extra{Reentrant: []string{"layer1", "layer2"}}, models.Reentrant},
		{export.Extra{Checkpointed: []string{"layer1"}, Reentrant: []string{"layer2"}}, ""},
	} {
		captured := changed(t, "timm-resnet18", func(p *export.Program) { p.Extra = &c.extra })
		require.True(t, captured.Default.Checkpointing)
		require.Equal(t, c.how, captured.Default.Recompute)
		require.Equal(t, strings.Join(append(c.extra.Checkpointed, c.extra.Reentrant...), ","), captured.Default.Blocks)
	}
}

// The backward of a checkpointed module stops running forward again when it has all that was saved. What the rest of
// its code would make of tensors that are gone holds no memory: SegFormer's last stage gives its result another shape.
func TestCheckpointedStepsFreeWhatLives(t *testing.T) {
	files, err := filepath.Glob("testdata/*.pt2")
	require.NoError(t, err)
	recomputed := 0
	for _, file := range files {
		m, err := pt2.Open(file)
		require.NoError(t, err)
		for _, how := range []models.Recompute{"", "every=2", "selective=mm"} {
			c := models.Case{Batch: 2, Checkpointing: true, MemoryOptions: models.MemoryOptions{Recompute: how}}
			r, err := m.Record(c, testGPU, models.Options{})
			if errors.As(err, new(*models.CaseError)) {
				continue // without a list of equal modules
			}
			require.NoError(t, err, file)
			require.NoError(t, r.Program.Validate(), "%s %s", file, how)
			recomputed++
		}
	}
	require.Greater(t, recomputed, 3*len(files)/2)
}
