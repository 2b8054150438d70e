package hfconfig

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/vprof/vprof/models"
)

// storedQuantization is the quantization of a model's stored weights, as --quantize names it. It is empty for none, or
// for one that vprof does not support.
type storedQuantization string

// storedQuantization reads quantization_config; it returns empty for any quantization except bitsandbytes.
func (r *reader) storedQuantization() storedQuantization {
	var q struct {
		Method string `json:"quant_method"`
		Four   bool   `json:"load_in_4bit"`
		Eight  bool   `json:"load_in_8bit"`
		Type   string `json:"bnb_4bit_quant_type"`
		Double bool   `json:"bnb_4bit_use_double_quant"`
	}
	value, _, ok := r.get("quantization_config")
	if !ok || null(value) || json.Unmarshal(value, &q) != nil || q.Method != "bitsandbytes" {
		return ""
	}
	switch {
	case q.Eight && !q.Four:
		return "int8"
	case q.Four && !q.Eight && q.Type == "nf4" && q.Double:
		return "nf4-dq"
	case q.Four && !q.Eight && q.Type == "nf4":
		return "nf4"
	}
	return ""
}

// check returns the field and the reason if a case's quantization differs from the stored weights'.
func (s storedQuantization) check(c models.Case) (field, reason string) {
	switch {
	case s == "":
		return "", ""
	case c.Quantize == "":
		return "quantize", fmt.Sprintf("the configuration says that the weights are stored in few bits, by "+
			"bitsandbytes; train adapters beside them with --quantize %s --lora ...", s)
	case s.bits() != storedQuantization(c.LayerQuantization()).bits():
		return "quantize", fmt.Sprintf("the configuration says that the weights are stored as %s, which transformers "+
			"does not bring to %s", s, c.Quantize)
	}
	return "", ""
}

func (s storedQuantization) bits() string {
	kind, _, _ := strings.Cut(string(s), "-")
	return kind
}

// caveat returns a warning if a case's quantization differs from the stored weights'.
func (s storedQuantization) caveat(c models.Case) []string {
	if s == "" || c.LayerQuantization() == string(s) {
		return nil
	}
	return []string{fmt.Sprintf("quantize: the weights are stored as %s, which transformers keeps; planned is %s",
		s, c.Quantize)}
}

// inferenceOnlyMethods are the quantization methods with which transformers 5.23 cannot train adapters.
var inferenceOnlyMethods = strings.Fields("auto-round fbgemm_fp8 gguf higgs metal nvfp4 quark spqr vptq")

// quantizationLibraries maps other quantization methods to the library whose layers hold the weights.
var quantizationLibraries = map[string]string{
	"aqlm": "aqlm", "awq": "gptqmodel", "bitnet": "transformers' BitNet", "compressed-tensors": "compressed-tensors",
	"eetq": "eetq",
	"fp8":  "transformers' FP8 kernels", "gptq": "gptqmodel", "hqq": "hqq", "mxfp8": "transformers' FP8 kernels",
	"quanto": "optimum-quanto", "torchao": "torchao",
}

// refuseOtherQuantization refuses weights that a library other than bitsandbytes has quantized.
func (r *reader) refuseOtherQuantization() {
	const key, instead = "quantization_config",
		"; to train adapters beside the same model as bitsandbytes holds it, take the config.json of the weights " +
			"that were quantized, and --quantize nf4 --lora"
	var q struct {
		Method string `json:"quant_method"`
	}
	if value, name, ok := r.get(key); ok && json.Unmarshal(value, &q) == nil {
		switch layers := quantizationLibraries[q.Method]; {
		case layers != "":
			r.fail(name, "quant_method is %q, whose layers (%s) unpack weights in their own kernels, which vprof "+
				"does not model%s", q.Method, layers, instead)
			return
		case slices.Contains(inferenceOnlyMethods, q.Method):
			r.fail(name, "quant_method is %q, and transformers trains nothing with weights in this format%s",
				q.Method, instead)
			return
		}
	}
	r.refuse(key)
}
