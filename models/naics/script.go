package naics

import "github.com/vprof/vprof/models"

// The formula of the NAICS embedder's scripts/optimize_gpu_config.py, as its
// authors wrote it. It counts activations as four half-precision maps per layer with
// working checkpointing, and weights in half precision.
const (
	scriptChannels   = 4          // text encoders
	scriptHidden     = 384        // width of an encoder
	scriptLength     = 512        // tokens of a text
	scriptRank       = 8          // of LoRA
	scriptExperts    = 4          // of the mixture, two of which see a sample
	scriptWidth      = 1024       // of an expert
	scriptLayers     = 6          // of an encoder
	scriptHalf       = 2          // bytes of a number in half precision
	scriptRecomputed = 0.25       // share of activations left by checkpointing
	scriptMargin     = 0.85       // share of the memory that may be used
	scriptOverhead   = 1500       // MiB of context and framework
	scriptMaxBatch   = 128        // the script looks no further
	scriptEncoder    = 22_700_000 // parameters of an encoder
	mib              = 1 << 20
)

// script implements [models.Script].
type script struct{}

// EffectiveBatch is 256 anchors.
func (script) EffectiveBatch() int { return 256 }

// Parts are the two profiles of the script, for stages of the curriculum.
func (script) Parts() []models.ScriptPart {
	return []models.ScriptPart{
		{Name: "01_stage (Early)", Model: "naics-embedder-stage01", Settings: models.Settings{"n-negatives": 24}},
		{Name: "02-05_stage (Later)", Model: "naics-embedder", Settings: models.Settings{"n-negatives": 8}},
	}
}

// Recommend is the largest batch within the script's margin. If not even a batch of
// one is, the script recommends that all the same.
func (script) Recommend(p models.ScriptPart, memory int64, effective int) models.ScriptAdvice {
	available, negatives := float64(memory)/mib, p.Settings["n-negatives"]
	batch := 1
	for b := 2; b <= scriptMaxBatch && scriptTotal(b, negatives) <= available*scriptMargin; b++ {
		batch = b
	}
	advice := models.ScriptAdvice{
		Batch: batch, Accumulate: max(1, effective/batch),
		Utilization: scriptTotal(batch, negatives) / available,
	}
	for i, part := range scriptParts(batch, negatives) {
		advice.Components = append(advice.Components,
			models.ScriptComponent{Name: scriptNames[i], Bytes: int64(part * mib)})
	}
	return advice
}

// scriptNames name the numbers of [scriptParts].
var scriptNames = [6]string{"model parameters", "optimizer state", "gradients", "activations", "batch data", "overhead"}

// scriptParts are what the script adds up for a batch, MiB.
func scriptParts(batch int, negatives int64) [6]float64 {
	const n, d, e, h = scriptChannels, scriptHidden, scriptExperts, scriptWidth
	parameters := float64(scriptEncoder*n + n*(2*scriptRank*d*50) + e*2*(d*n)*h + (d*n)*e + (d*n)*d)
	sequences := float64(int64(batch) * (2 + negatives))
	perSequence := float64(n*(scriptLength*scriptLength*12+scriptLayers*scriptLength*d*4) + 2*n*d + 2*2*h + 2*d)
	return [6]float64{
		parameters * scriptHalf / mib,
		parameters * 8 / mib,
		parameters * scriptHalf / mib,
		sequences * perSequence * scriptRecomputed * scriptHalf / mib,
		sequences * n * scriptLength * 2 * 8 / mib,
		scriptOverhead,
	}
}

func scriptTotal(batch int, negatives int64) float64 {
	var sum float64
	for _, part := range scriptParts(batch, negatives) {
		sum += part
	}
	return sum
}
