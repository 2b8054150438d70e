package trainers

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/vprof/vprof/models/hfconfig"
)

// The facts of LLaMA-Factory's freeze training: the number of trained layers, counted from the end (negative: from the
// beginning), the trained modules of those layers, and the trained modules outside of layers.
const (
	freezeLayers  = "freeze-layers"
	freezeModules = "freeze-modules"
	freezeExtra   = "freeze-extra"
)

// frozenTowers is the fact that the image and audio encoders (towers) are not trained.
const frozenTowers = "frozen-towers"

// maxLayers is the largest accepted layer number, and the largest number of layers of a model.
const maxLayers = 4096

// dependsOnLayers reports whether the trained parameters depend on the number of layers (freeze of LLaMA-Factory).
func (c *Config) dependsOnLayers() bool { return c.facts["tuner"].value == "freeze" }

// checkFreeze returns an error if the configured layer numbers are invalid.
func (c *Config) checkFreeze() error {
	if !c.dependsOnLayers() {
		return nil
	}
	n := c.facts[freezeLayers]
	if k, err := strconv.Atoi(n.value); err != nil || k < -maxLayers || k > maxLayers {
		return n.fault("%s is not a number of layers from %d to %d", n.value, -maxLayers, maxLayers)
	}
	return nil
}

func (f fact) fault(format string, args ...any) error { return f.from.fault(format, args...) }

// ChooseLayers adds settings that depend on the model's number of layers: the trained parameters, and the stages of a
// pipeline. The model is a config.json or a folder with one. The error is a [*input.FormatError].
func (c *Config) ChooseLayers(model string) error {
	if err := c.setStageLayers(model); err != nil {
		return err
	}
	if !c.dependsOnLayers() {
		return c.freezeTowers(model)
	}
	count, composite, err := layersOf(model)
	f := c.facts[freezeLayers]
	if err != nil {
		return c.facts["tuner"].fault("the layers that are trained are counted in the model's %s: %v", configName, err)
	}
	ids, err := c.trainedLayers(count)
	if err != nil {
		return err
	}
	prefix := ""
	if composite { // towers have layers, too, and are frozen
		prefix = `language_model\..*`
	}
	var list []string
	for m := range strings.SplitSeq(c.facts[freezeModules].value, ",") {
		if m = strings.TrimSpace(m); m == "all" {
			m = ""
		}
		if len(ids) > 0 {
			list = append(list, prefix+`\.(?:`+strings.Join(ids, "|")+`)\.`+regexp.QuoteMeta(m))
		}
	}
	for m := range strings.SplitSeq(c.facts[freezeExtra].value, ",") {
		if m = strings.TrimSpace(m); m != "" {
			list = append(list, regexp.QuoteMeta(m))
		}
	}
	if len(list) == 0 {
		return f.fault("is %s: nothing is trained", f.value)
	}
	return c.add("train-only", strings.Join(list, "|"), cmp.Or(f.from, c.facts["tuner"].from))
}

// freezeTowers freezes the image and audio encoders of a model, as trainers do by default when they train no adapters.
func (c *Config) freezeTowers(model string) error {
	f := c.facts[frozenTowers]
	if f.value != "true" || c.facts["tuner"].value == "lora" {
		return nil
	}
	if _, composite, err := layersOf(model); err == nil && composite {
		return c.add("train-only", languageModelModules, f.from)
	}
	return nil
}

// languageModelModules matches the modules outside of the image and audio encoders.
const languageModelModules = `language_model|text_model|lm_head`

func (c *Config) trainedLayers(count int) (ids []string, err error) {
	f := c.facts[freezeLayers]
	n, _ := strconv.Atoi(f.value)
	begin, end, stride := max(0, count-n), count, 1
	switch {
	case c.facts["llama-pro"].value == "true":
		if n < 1 || count%n != 0 {
			return nil, f.fault("is %d, which does not divide the model's %d layers, as use_llama_pro needs", n, count)
		}
		stride = count / n
		begin = stride - 1
	case n <= 0:
		begin, end = 0, min(-n, count)
	}
	for i := begin; i < end; i += stride {
		ids = append(ids, strconv.Itoa(i))
	}
	return ids, nil
}

// layersOf reads the number of layers of a language model from a config.json. composite reports whether the model also
// has image or audio encoders.
func layersOf(path string) (count int, composite bool, err error) {
	data, err := readConfig(path)
	if err != nil {
		return 0, false, fmt.Errorf("the model's configuration %s cannot be read; give its path, relative to the "+
			"working directory", path)
	}
	type layers struct {
		NumHidden int `json:"num_hidden_layers"`
		Num       int `json:"num_layers"`
		N         int `json:"n_layer"`
	}
	var config struct {
		layers
		Text   *layers          `json:"text_config"`
		Vision *json.RawMessage `json:"vision_config"`
	}
	if err := json.Unmarshal(data, &config); err != nil {
		return 0, false, fmt.Errorf("the model's configuration %s is not JSON; name the config.json of a "+
			"transformers model", path)
	}
	l := config.layers
	if config.Text != nil {
		l = *config.Text
	}
	count = cmp.Or(l.NumHidden, l.Num, l.N)
	if count < 1 || count > maxLayers {
		return 0, false, fmt.Errorf("the model's configuration %s has no number of layers from 1 to 4096; set "+
			"num_hidden_layers in it", path)
	}
	return count, config.Text != nil || config.Vision != nil, nil
}

// readConfig reads a config.json, given as a file or as the folder that holds it.
func readConfig(path string) ([]byte, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, configName)
	}
	data, err := os.ReadFile(path)
	if config, known := hfconfig.OfHub(path); known && err != nil {
		return config, nil
	}
	return data, err
}
