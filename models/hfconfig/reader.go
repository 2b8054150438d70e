package hfconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/vprof/vprof/internal/input"
	"github.com/vprof/vprof/models"
	"github.com/vprof/vprof/models/hf"
)

// A reader reads the keys of a configuration. Absent keys have transformers' defaults. The reader keeps the first error
// and goes on with defaults, so that callers need not check after every key.
type reader struct {
	file string
	raw  map[string]json.RawMessage
	// aliases maps keys to other names for them, which are looked up first.
	aliases map[string]string
	// used holds the keys that were read, with their values in the file.
	used map[string]json.RawMessage
	err  *input.FormatError
	// in is the key of this configuration in the enclosing one, whose reader (up) records the errors. under holds the
	// readers of the configurations nested in this one.
	in    string
	up    *reader
	under map[string]*reader
	// grids reports whether rotary embeddings may have several position grids (mrope).
	grids bool
}

func newReader(file string, data []byte) (*reader, error) {
	r := &reader{file: file, used: map[string]json.RawMessage{}}
	var syntax *json.SyntaxError
	switch err := json.Unmarshal(data, &r.raw); {
	case errors.As(err, &syntax):
		line := 1 + bytes.Count(data[:min(int(syntax.Offset), len(data))], []byte("\n"))
		return nil, &input.FormatError{File: file, Line: line, Reason: "not JSON: " + err.Error()}
	case err != nil || r.raw == nil:
		return nil, &input.FormatError{File: file, Reason: "not a JSON object, as a config.json of transformers is"}
	}
	return r, nil
}

// sub returns a reader of the configuration under a key. If it is absent, all its keys have defaults.
func (r *reader) sub(key string) *reader {
	if known := r.under[key]; known != nil {
		return known
	}
	child := &reader{
		file: r.file, raw: map[string]json.RawMessage{}, used: map[string]json.RawMessage{},
		in: key, up: r,
	}
	if r.under == nil {
		r.under = map[string]*reader{}
	}
	r.under[key] = child
	if value, ok := r.raw[key]; ok && !null(value) && json.Unmarshal(value, &child.raw) != nil {
		r.fail(key, "%s: need an object with the keys of a configuration", excerpt(value))
	}
	return child
}

// usedKeys returns the keys that were read, also in nested configurations.
func (r *reader) usedKeys() (json.RawMessage, error) {
	for key, child := range r.under {
		if _, ok := r.raw[key]; !ok {
			continue
		}
		within, err := child.usedKeys()
		if err != nil {
			return nil, err
		}
		r.used[key] = within
	}
	return json.Marshal(r.used)
}

// fail records an error about a key's value.
func (r *reader) fail(key, format string, args ...any) {
	if r.up != nil {
		r.up.fail(r.in+"."+key, format, args...)
		return
	}
	if r.err == nil {
		r.err = &input.FormatError{File: r.file, Key: key, Reason: fmt.Sprintf(format, args...)}
	}
}

// must records an error about a key unless a condition holds.
func (r *reader) must(holds bool, key, format string, args ...any) {
	if !holds {
		r.fail(key, format, args...)
	}
}

// get returns the value of a key, and the name that the file uses for the key.
func (r *reader) get(key string) (value json.RawMessage, name string, ok bool) {
	for _, name := range []string{r.aliases[key], key} {
		if value, ok := r.raw[name]; ok && name != "" {
			r.used[name] = value
			return value, name, true
		}
	}
	return nil, key, false
}

// has reports whether a key has a value other than null.
func (r *reader) has(key string) bool {
	value, _, ok := r.get(key)
	return ok && !null(value)
}

// null reports whether a value is JSON's null, Python's None.
func null(value json.RawMessage) bool { return string(value) == "null" }

// excerpt returns a value for an error message, shortened to 40 bytes.
func excerpt(value json.RawMessage) string {
	const most = 40
	if text := string(value); len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(string(value[:most]), "") + "..."
}

// wholeNumber parses an integer within bounds. Like Python's int arithmetic in transformers, it accepts 768.0.
func (r *reader) wholeNumber(value json.RawMessage, name string, least, most int64) (n int64, ok bool) {
	n, err := strconv.ParseInt(string(value), 10, 64)
	switch {
	case errors.Is(err, strconv.ErrRange), err == nil && (n < least || n > most):
		r.fail(name, "%s is out of range: need %d to %d", excerpt(value), least, most)
	case err != nil:
		r.fail(name, "%s: need a whole number", excerpt(value))
	default:
		return n, true
	}
	return 0, false
}

// size returns an integer from 1 to most, or otherwise if the key is absent.
func (r *reader) size(key string, otherwise, most int64) int64 {
	return r.number(key, otherwise, 1, most)
}

// number returns an integer from least to most, or otherwise if the key is absent.
func (r *reader) number(key string, otherwise, least, most int64) int64 {
	if value, name, ok := r.get(key); ok {
		if n, ok := r.wholeNumber(value, name, least, most); ok {
			return n
		}
	}
	return otherwise
}

// sizeOr returns a size, absent if the key is missing, or none if its value is null.
func (r *reader) sizeOr(key string, absent, none, most int64) int64 {
	if value, _, ok := r.get(key); ok && null(value) {
		return none
	}
	return r.size(key, absent, most)
}

// sizes returns a list of sizes, each from 1 to most, or otherwise if the key is absent.
func (r *reader) sizes(key string, otherwise []int64, most int64) []int64 {
	value, name, ok := r.get(key)
	if !ok {
		return otherwise
	}
	switch out := r.list(value, name, 1, most); {
	case len(out) > mostConvolutions:
		r.fail(name, "the list has %d numbers: need at most %d", len(out), mostConvolutions)
	case len(out) > 0:
		return out
	default:
		r.fail(name, "%s: need a list of whole numbers", excerpt(value))
	}
	return otherwise
}

// numbers returns a list of integers, each at most most, or usual if the key is absent.
func (r *reader) numbers(key string, most int64, usual ...int64) []int64 {
	if value, name, ok := r.get(key); ok && !null(value) {
		if list := r.list(value, name, 0, most); list != nil {
			return list
		}
	}
	return usual
}

// list parses a list of integers within bounds; nil if the value is not such a list.
func (r *reader) list(value json.RawMessage, name string, least, most int64) []int64 {
	var list []json.RawMessage
	if err := json.Unmarshal(value, &list); err != nil || len(list) > mostLayers {
		r.fail(name, "%s: need a list of whole numbers", excerpt(value))
		return nil
	}
	out := make([]int64, len(list))
	for i, v := range list {
		var ok bool
		if out[i], ok = r.wholeNumber(v, name, least, most); !ok {
			return nil
		}
	}
	return out
}

// squareSize returns the height and width of an image or a patch: one number, or a list of two equal ones.
func (r *reader) squareSize(key string, otherwise int64) int64 {
	value, name, ok := r.get(key)
	if !ok || !bytes.HasPrefix(value, []byte("[")) {
		return r.size(key, otherwise, mostImage)
	}
	sides := r.sizes(key, []int64{otherwise, otherwise}, mostImage)
	if len(sides) != 2 || sides[0] != sides[1] {
		r.fail(name, "%s: vprof supports only square images and patches, so need two equal numbers", excerpt(value))
	}
	return sides[0]
}

// padToken returns the id of the padding token; none if the value is null, or it is missing and absent < 0.
func (r *reader) padToken(absent, vocab int64) (id int64, some bool) {
	value, name, ok := r.get("pad_token_id")
	if ok && null(value) || !ok && absent < 0 {
		return 0, false
	}
	id = absent
	if ok {
		if id, ok = r.wholeNumber(value, name, -1, mostVocab); !ok {
			return 0, false
		}
	}
	r.must(id < vocab, name, "%d: need a token number below vocab_size, %d", id, vocab)
	return id, true
}

// probability returns a number from 0 to 1, or otherwise if the key is absent or null.
func (r *reader) probability(key string, otherwise float64) float64 {
	value, name, ok := r.get(key)
	if !ok || null(value) {
		return otherwise
	}
	p, err := strconv.ParseFloat(string(value), 64)
	if err != nil || !(p >= 0 && p <= 1) {
		r.fail(name, "%s: need a number from 0 to 1", excerpt(value))
		return otherwise
	}
	return p
}

// boolean returns a key's true or false, or otherwise if the key is absent.
func (r *reader) boolean(key string, otherwise bool) bool {
	value, name, ok := r.get(key)
	switch {
	case !ok:
		return otherwise
	case string(value) == "true":
		return true
	case string(value) == "false":
		return false
	}
	r.fail(name, "%s: need true or false", excerpt(value))
	return otherwise
}

// choice returns one of the known names, or otherwise if the key is absent.
func (r *reader) choice(key, otherwise string, known []string) string {
	value, name, ok := r.get(key)
	if !ok {
		return otherwise
	}
	var w string
	if json.Unmarshal(value, &w) != nil || !slices.Contains(known, w) {
		r.fail(name, "vprof does not support %s: need one of %s", excerpt(value), strings.Join(known, ", "))
		return otherwise
	}
	return w
}

// names returns a list of strings; nil if the key is absent.
func (r *reader) names(key string) []string {
	value, name, ok := r.get(key)
	if !ok || null(value) {
		return nil
	}
	var list []string
	if json.Unmarshal(value, &list) != nil {
		r.fail(name, "%s: need a list of names", excerpt(value))
	}
	return list
}

// refuse records an error if a key has a value that vprof does not support: any except null and the harmless ones.
func (r *reader) refuse(key string, harmless ...string) {
	value, name, ok := r.get(key)
	if ok && !null(value) && !slices.Contains(harmless, string(value)) {
		r.fail(name, "vprof does not support the value %s; need %s, or run your own script with \"vprof run\"",
			excerpt(value), strings.Join(append(harmless, "no value"), " or "))
	}
}

// labelCount returns num_labels. Like transformers, it uses the length of id2label if the file has that.
func (r *reader) labelCount() int64 {
	const usual = 2
	value, name, ok := r.get("id2label")
	if !ok || null(value) {
		return r.size("num_labels", usual, mostClasses)
	}
	var labels map[string]json.RawMessage
	if json.Unmarshal(value, &labels) != nil || len(labels) == 0 || len(labels) > mostClasses {
		r.fail(name, "%s: need an object with 1 to %d labels", excerpt(value), mostClasses)
		return usual
	}
	// Only the number of labels affects the model.
	delete(r.used, "id2label")
	r.used["num_labels"] = json.RawMessage(strconv.Itoa(len(labels)))
	return int64(len(labels))
}

// refuseCommonKeys refuses unsupported values of keys that all configurations have.
func (r *reader) refuseCommonKeys() {
	if !r.dequantized() && r.storedQuantization() == "" {
		r.refuseOtherQuantization()
	}
	r.refuse("attn_implementation", `"sdpa"`)
	r.refuse("_attn_implementation", `"sdpa"`)
	r.refuse("output_hidden_states", "false")
	r.refuse("output_attentions", "false")
	r.refuse("chunk_size_feed_forward", "0")
	r.refuse("per_layer_config")
}

// weightType returns the dtype in which transformers 5 loads the weights (dtype="auto").
func (r *reader) weightType() string {
	for _, key := range []string{"dtype", "torch_dtype"} {
		if value, _, ok := r.get(key); ok && !null(value) {
			return map[string]string{
				"bfloat16": "bf16",
				"float16":  "fp16",
			}[r.choice(key, "float32", []string{"float32", "bfloat16", "float16"})]
		}
	}
	if r.dequantized() {
		return "bf16"
	}
	return ""
}

// dequantized reports whether the stored weights are in MXFP4, which transformers loads as bf16 for training.
func (r *reader) dequantized() bool {
	var q struct {
		Method string `json:"quant_method"`
	}
	value, _, ok := r.get("quantization_config")
	return ok && json.Unmarshal(value, &q) == nil && q.Method == "mxfp4"
}

// defaultTask returns the task of the file's architectures. For a model without a head it is the usual task, and empty
// if vprof supports none of them. In both cases instead holds the names of the architectures.
func (r *reader) defaultTask(f family) (task string, instead []string) {
	given := r.names("architectures")
	for _, a := range given {
		if task, ok := f.heads[a]; ok {
			return task, nil
		}
	}
	for head := range f.heads {
		if slices.ContainsFunc(given, func(a string) bool {
			bare, ok := strings.CutSuffix(a, "Model")
			return ok && strings.HasPrefix(head, bare+"For")
		}) {
			return f.usual, given
		}
	}
	if len(given) == 0 {
		return f.usual, nil
	}
	return "", given
}

// lengthSetting returns the setting of the sequence length, at most the value of a key of the configuration.
func lengthSetting(usual, most int64, key string) models.Setting {
	s := hf.LengthSetting(usual, most)
	s.Usage += " (" + key + " of the configuration)"
	return s
}

// usualSizes are rows of [reader.setFields] that several small models share.
const usualSizes = "Width=hidden_size:768 Layers=num_hidden_layers:12 Heads=num_attention_heads:12 "

// fieldLimits are the largest sizes that [reader.setFields] accepts, by the end of a field's name.
var fieldLimits = map[string]int64{
	"Vocab": mostVocab, "Types": mostVocab, "Width": mostWidth, "Heads": mostWidth, "Groups": mostWidth,
	"Size": mostWidth, "Layers": mostLayers, "Inner": mostInner, "Positions": mostPositions, "Window": mostPositions,
	"Channels": mostChannels, "Bins": mostChannels, "Kernel": mostKernel, "Patch": mostImage,
}

// setFields sets fields of c, a pointer to a model's configuration, by rows of text.
// "QKVBias+OutputBias=attention_bias:false" sets two fields to the value of attention_bias, false by default;
// "!Untied=tie_word_embeddings:true" sets a field to the opposite. Integers are sizes, floats probabilities, strings
// activations.
func (r *reader) setFields(c any, rows string) {
	for row := range strings.FieldsSeq(rows) {
		names, key, _ := strings.Cut(row, "=")
		key, usual, _ := strings.Cut(key, ":")
		names, inverted := strings.CutPrefix(names, "!")
		number, _ := strconv.ParseFloat(usual, 64)
		for name := range strings.SplitSeq(names, "+") {
			switch field := reflect.ValueOf(c).Elem().FieldByName(name); field.Kind() {
			case reflect.Bool:
				field.SetBool(r.boolean(key, usual == "true") != inverted)
			case reflect.Float64:
				field.SetFloat(r.probability(key, number))
			case reflect.String:
				field.SetString(r.choice(key, usual, hf.Activations()))
			default:
				for end, most := range fieldLimits {
					if strings.HasSuffix(name, end) {
						field.SetInt(r.size(key, int64(number), most))
					}
				}
			}
		}
	}
}
