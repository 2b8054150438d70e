package models

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRecomputingIsReadAsItIsWritten(t *testing.T) {
	for text, want := range map[string]Recompute{
		"non-reentrant": "", "reentrant": "reentrant", "every=1": "",
		"every=02": "every=2",
	} {
		got, err := ParseRecompute(text)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
	require.Equal(t, 2, Recompute("every=2").EveryLayers())
	require.Equal(t, 1, Reentrant.EveryLayers())
	for _, text := range []string{"", "every=0", "every=x", "every=9999999", "sometimes"} {
		_, err := ParseRecompute(text)
		require.Error(t, err, text)
	}
}

func TestLeversThatContradictAreExplained(t *testing.T) {
	every := MemoryOptionSupport{Loop: LoopTrainer, Quantize: true, Recompute: true, Liger: true}
	m := Model{
		Name: "it", Stages: []string{"full"}, Default: Case{Stage: "full", Batch: 1}, SupportsLoRA: true,
		Supports: every,
	}
	lora := &LoRA{Rank: 8}
	for want, c := range map[string]Case{
		`it: quantize: there is no quantization "nf3"; use nf4, nf4-dq, int8, nf4+experts, nf4-dq+experts, int8+experts`:                                          {MemoryOptions: MemoryOptions{Quantize: "nf3"}},
		"it: quantize: quantized layers cannot be trained; add adapters with --lora, or leave out --quantize":                                                     {MemoryOptions: MemoryOptions{Quantize: "nf4"}},
		"it: checkpointing: reentrant is a way of checkpointing, but checkpointing is off; turn it on, or leave out reentrant":                                    {MemoryOptions: MemoryOptions{Recompute: Reentrant}},
		"it: optimizer-in-backward: with fp16 the loss scaler must see all gradients before a step, which --optimizer-in-backward does not allow; use --amp bf16": {AMP: "fp16", MemoryOptions: MemoryOptions{InBackward: true}},
		`it: clip: invalid clipping "value": need norm or none`:                                                                                                   {MemoryOptions: MemoryOptions{Clip: "value"}},
		"it: clip: the norm of all gradients is not known while the optimizer steps in backward; use --clip none, or leave out --optimizer-in-backward":           {MemoryOptions: MemoryOptions{InBackward: true, Clip: ClipNorm}},
	} {
		_, err := m.Complete(c)
		require.EqualError(t, err, want)
	}
	all := Case{
		LoRA: lora, Checkpointing: true,
		MemoryOptions: MemoryOptions{
			Quantize: "nf4", Liger: true, Recompute: "every=2", Offload: true,
			InBackward: true,
		},
	}
	_, err := m.Complete(all)
	require.NoError(t, err)
	require.Equal(t,
		[]string{"optimizer-in-backward: every one of the 4 micro-batches is a step of its own, since its gradients " +
			"are used and freed at once"},
		m.Caveats(Case{Accumulate: 4, MemoryOptions: MemoryOptions{InBackward: true}})[:1])
	m.Supports = MemoryOptionSupport{}
	for want, c := range map[string]Case{
		"it: quantize: vprof cannot quantize this model, only models of transformers and exported models (.pt2); " +
			"leave out --quantize": {LoRA: lora, MemoryOptions: MemoryOptions{Quantize: "nf4"}},
		"it: liger: vprof supports no kernels of liger-kernel for this model, only for decoders of transformers " +
			"(hf:config.json and exported ones); leave out --liger": {
			MemoryOptions: MemoryOptions{Liger: true},
		},
		"it: offload: this model has its own training loop, which vprof records as it is; leave out this option " +
			"(models of transformers and exported models, .pt2, accept it)": {MemoryOptions: MemoryOptions{Offload: true}},
		"it: checkpointing: the model has one kind of checkpointing; use true or false (decoders of transformers and " +
			"exported models, .pt2, have more)": {
			Checkpointing: true,
			MemoryOptions: MemoryOptions{Recompute: Reentrant},
		},
	} {
		_, err := m.Complete(c)
		require.EqualError(t, err, want)
	}
	require.Equal(t,
		"it, fp32, checkpointing, LoRA r=8,alpha=0,target=all-linear, nf4, liger, recompute every=2, "+
			"activations on the host, optimizer in backward, PyTorch 2.11",
		Case{Model: "it", Stage: "full", LoRA: lora, Checkpointing: true, MemoryOptions: all.MemoryOptions}.String())
}
