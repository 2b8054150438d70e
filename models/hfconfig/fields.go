package hfconfig

import (
	"reflect"
	"strconv"
	"strings"

	"github.com/vprof/vprof/models/hf"
)

// usualSizes are the sizes that several small models have.
const usualSizes = "Width=hidden_size:768 Layers=num_hidden_layers:12 Heads=num_attention_heads:12 "

// mostOf bounds the sizes that [reader.fields] reads, by the ends of the names of their fields.
var mostOf = map[string]int64{
	"Vocab": mostVocab, "Types": mostVocab, "Width": mostWidth, "Heads": mostWidth, "Groups": mostWidth,
	"Size": mostWidth, "Layers": mostLayers, "Inner": mostInner, "Positions": mostPositions, "Window": mostPositions,
	"Channels": mostChannels, "Bins": mostChannels, "Kernel": mostKernel, "Patch": mostImage,
}

// fields sets fields of a configuration, to which c points, by rows of text: "QKVBias+OutputBias=attention_bias:false"
// sets two fields to what that key of the file says, or else to false, and "!Untied=tie_word_embeddings:true" sets one
// to the opposite. Whole numbers are sizes, others probabilities, and words the names of functions.
func (r *reader) fields(c any, rows string) {
	for row := range strings.FieldsSeq(rows) {
		names, key, _ := strings.Cut(row, "=")
		key, usual, _ := strings.Cut(key, ":")
		names, inverted := strings.CutPrefix(names, "!")
		number, _ := strconv.ParseFloat(usual, 64)
		for name := range strings.SplitSeq(names, "+") {
			switch field := reflect.ValueOf(c).Elem().FieldByName(name); field.Kind() {
			case reflect.Bool:
				field.SetBool(r.flag(key, usual == "true") != inverted)
			case reflect.Float64:
				field.SetFloat(r.probability(key, number))
			case reflect.String:
				field.SetString(r.word(key, usual, hf.Activations()))
			default:
				for end, most := range mostOf {
					if strings.HasSuffix(name, end) {
						field.SetInt(r.size(key, int64(number), most))
					}
				}
			}
		}
	}
}
