package hfconfig

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/models"
)

// Bytes that a step asks for beyond those before it, with ms-swift's functions for embeddings and
// rerankers: at most in its forward pass and in backward. They were called with PyTorch 2.11 and
// its allocator, four rows of 256 tokens.
func TestTextsThatBelongTogether(t *testing.T) {
	lora := &models.LoRA{Rank: 8}
	for _, want := range []struct {
		objective         string
		task              string
		lora              *models.LoRA
		amp               models.Autocast
		forward, backward int64
	}{
		{"embedding", causalLM, nil, models.NoAutocast, 68356168, 72541260},
		{"embedding", causalLM, nil, "bf16", 68356168, 72541264},
		{"embedding:unpadded", causalLM, nil, "bf16", 69595208, 72737872},
		{"embedding:pairs", causalLM, nil, "bf16", 68356168, 72541268},
		{"reranker:negatives=3", causalLM, nil, models.NoAutocast, 68356168, 73065548},
		{"reranker:negatives=3", causalLM, nil, "bf16", 68356168, 73065552},
		{"reranker:negatives=3,unpadded", causalLM, nil, "bf16", 68550728, 73262160},
		{"reranker:negatives=3", classification, nil, models.NoAutocast, 68356168, 72542284},
		{"reranker:negatives=3", classification, nil, "bf16", 68356168, 72542288},
		{"reranker:negatives=3,unpadded", classification, nil, "bf16", 68550728, 72738896},
		{"embedding", causalLM, lora, models.NoAutocast, 101537864, 102584396},
		{"embedding", causalLM, lora, "bf16", 78518344, 77443152},
		{"embedding:unpadded", causalLM, lora, "bf16", 78712904, 77639760},
		{"reranker:negatives=3,unpadded", causalLM, lora, "bf16", 78712904, 77639760},
		{"reranker:negatives=3", classification, lora, "bf16", 78518344, 77444176},
		{"reranker:negatives=3,unpadded", classification, lora, "bf16", 78712904, 77640784},
	} {
		o, err := models.ParseObjective(want.objective)
		require.NoError(t, err)
		m, settings := model(t, shortLlama), models.Settings{"seq-len": 256, "padding": 0}
		if want.task == classification {
			settings["classes"] = 1
		} else {
			settings["packed"] = 0
		}
		c := complete(t, m, models.Case{
			Batch: int(4 / o.Rows()), Task: want.task, LoRA: want.lora, Torch: "2.11", Weights: "bf16", AMP: want.amp,
			Optimizer: "sgd", Settings: settings,
			Levers: models.Levers{Objective: o, Clip: models.ClipNone},
		})
		forward, backward := growth(t, m, c)
		require.InEpsilon(t, want.forward, forward, 0.0005, "%s %s", want.objective, want.task)
		require.InEpsilon(t, want.backward, backward, 0.0005, "%s %s", want.objective, want.task)
	}
}

func TestTextsThatCannotBelongTogether(t *testing.T) {
	m := model(t, shortLlama)
	for want, c := range map[string]models.Case{
		"objective: packed: pairs in one row are ms-swift's; add as=ms-swift": {
			Levers: models.Levers{Objective: models.Objective{Name: models.DPO, Packed: true}},
		},
		"objective: a reranker gives a text one score; add --set classes=1": {
			Task:   classification,
			Levers: models.Levers{Objective: models.Objective{Name: models.Reranker}},
		},
		"objective: texts in one row have neither padding nor a mask here": {Settings: models.Settings{
			"padding": 1,
		}, Levers: models.Levers{Objective: models.Objective{Name: models.Embedding, Unpadded: true}}},
		"objective: embedding is learnt by a language model": {
			Task:   classification,
			Levers: models.Levers{Objective: models.Objective{Name: models.Embedding}},
		},
		"objective: vprof does not record texts that belong together under tensor p": {
			GPUs:     4,
			Strategy: &models.Strategy{Name: models.TP, TP: 2},
			Levers:   models.Levers{Clip: models.ClipNone, Objective: models.Objective{Name: models.Reranker}},
		},
	} {
		_, err := m.Complete(c)
		require.ErrorContains(t, err, want)
	}
}
