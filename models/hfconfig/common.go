package hfconfig

import (
	"encoding/json"

	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hf"
)

// common reads what all configurations have in common, none of which vprof describes unless it is as usual.
func (r *reader) common() {
	if !r.dequantized() && r.stored() == "" {
		r.refuseStored()
	}
	r.refuse("attn_implementation", `"sdpa"`)
	r.refuse("_attn_implementation", `"sdpa"`)
	r.refuse("output_hidden_states", "false")
	r.refuse("output_attentions", "false")
	r.refuse("chunk_size_feed_forward", "0")
	r.refuse("per_layer_config")
}

// weights reads the type of the weights, in which transformers 5 loads and makes a model (dtype "auto").
func (r *reader) weights() string {
	for _, key := range []string{"dtype", "torch_dtype"} {
		if value, _, ok := r.get(key); ok && !null(value) {
			return map[string]string{
				"bfloat16": "bf16",
				"float16":  "fp16",
			}[r.word(key, "float32", []string{"float32", "bfloat16", "float16"})]
		}
	}
	if r.dequantized() {
		return "bf16"
	}
	return ""
}

// dequantized says that the file's weights are in MXFP4, which transformers loads as bf16 wherever they are trained.
func (r *reader) dequantized() bool {
	var q struct {
		Method string `json:"quant_method"`
	}
	value, _, ok := r.get("quantization_config")
	return ok && json.Unmarshal(value, &q) == nil && q.Method == "mxfp4"
}

// trained returns the task that the architectures of the file name. If they name
// none that vprof knows, it is "", and instead has them.
func (r *reader) trained(f family) (task string, instead []string) {
	given := r.words("architectures")
	for _, a := range given {
		if task, ok := f.heads[a]; ok {
			return task, nil
		}
	}
	if len(given) == 0 {
		return f.usual, nil
	}
	return "", given
}

// rowLength returns the setting of the tokens of a row, which a key of the configuration bounds.
func rowLength(usual, most int64, key string) models.Setting {
	s := hf.LengthSetting(usual, most)
	s.Usage += " (" + key + " of the configuration)"
	return s
}
