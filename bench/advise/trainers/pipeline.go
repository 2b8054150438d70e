package trainers

import (
	"cmp"
	"slices"
	"strconv"
	"strings"

	"github.com/vprof/vprof/bench/advise/configfile"
	"github.com/vprof/vprof/internal/phrase"
	"github.com/vprof/vprof/models"
)

// The facts of pipeline parallelism: its number of ranks, its schedule by torchtitan's name, the samples of a
// micro-batch, the number of micro-batches, the layers of a stage, and the numbers of layers that the embeddings and
// the output layer count as.
const (
	meshPipeline  = "pipeline"
	schedule      = "schedule"
	microBatch    = "micro-batch"
	microBatches  = "micro-batches"
	layersOfStage = "stage-layers"
	inputLayers   = "input-layers"
	outputLayers  = "output-layers"
)

// schedules maps torchtitan's names, in lower case, to the pipeline schedules that vprof records.
var schedules = map[string]string{"": "1f1b", "1f1b": "1f1b", "gpipe": "gpipe", "interleaved1f1b": models.Interleaved}

// addPipeline adds a pipeline to the strategy, which then applies within each stage. The batch becomes the micro-batch.
func (c *Config) addPipeline() error {
	n, ok := c.facts[meshPipeline]
	if !ok {
		return nil
	}
	sizes := map[string]int{}
	for _, name := range []string{meshPipeline, "gpus", "batch", microBatch, "accumulate"} {
		var err error
		if sizes[name], err = c.integerFact(name, 1, 0); err != nil {
			return err
		}
	}
	ranks, batch, each := sizes[meshPipeline], c.facts["batch"], max(1, sizes[microBatch])
	micro := sizes["batch"] / each
	how, known := schedules[strings.ToLower(c.facts[schedule].value)]
	shared := sizes["gpus"] > ranks
	switch {
	case !known:
		return c.facts[schedule].fault("is %s: vprof records pipelines by 1F1B, GPipe and Interleaved1F1B; take one "+
			"of them, or give vprof run the command as it is", c.facts[schedule].value)
	case how == models.Interleaved && shared:
		return c.facts[schedule].fault("is %s: vprof records stages that GPUs share with 1F1B and GPipe; take one of "+
			"them, or give vprof run the command as it is", c.facts[schedule].value)
	case sizes["batch"]%each != 0:
		return c.withFile(batch.from).fault("is %s, which is no multiple of a micro-batch of %d; torchtitan refuses it",
			batch.value, each)
	case micro < ranks:
		return c.withFile(batch.from).fault("is %s, which makes %d micro-batches of %d, and a pipeline of %d ranks "+
			"needs as many at least; make it a multiple of %d", batch.value, micro, each, ranks, ranks*each)
	case sizes["accumulate"] > 1:
		return c.facts["accumulate"].fault("has each pipeline run %d times before a step, and vprof records it once; "+
			"make local_batch_size %d, or leave it out", sizes["accumulate"], sizes["batch"]*sizes["accumulate"])
	}
	list := phrase.List{"pp=" + n.value, "micro=" + strconv.Itoa(micro)}
	list.If(how != "1f1b", "schedule=%s", how)
	_, options, _ := strings.Cut(c.facts["strategy"].value, ":")
	list.AddTexts(options)
	c.facts.set("strategy", models.PP+":"+strings.Join(list, ","), n.from)
	at := cmp.Or(c.facts[microBatch].from, Key{File: c.doc.file, Path: c.table.WrittenKeys[microBatch]})
	c.facts.set(microBatches, strconv.Itoa(micro), batch.from)
	c.facts.set("batch", strconv.Itoa(each), at)
	return nil
}

// stageOptions returns the strategy for a number of GPUs, without fully_shard if the pipeline uses all GPUs.
func (c *Config) stageOptions(strategy, gpus string) string {
	ranks, err := c.integerFact(meshPipeline, 0, 0)
	tensor, wrong := c.integerFact(meshTensor, 1, 0)
	if err != nil || wrong != nil || ranks == 0 || gpus != strconv.Itoa(ranks*tensor) {
		return strategy
	}
	return strings.Join(slices.DeleteFunc(strings.Split(strategy, ","), func(o string) bool {
		key, _, _ := strings.Cut(o, "=")
		return slices.Contains([]string{"mp", "reshard", "wrap"}, key)
	}), ",")
}

// pipelineEdits returns the edit that sets the batch size, if a pipeline's micro-batch has another size.
func (c *Config) pipelineEdits(v Values) []configfile.Edit {
	f := c.facts[microBatches]
	n, err := strconv.Atoi(f.value)
	if err != nil || c.facts["batch"].value == strconv.Itoa(v.Batch) {
		return nil
	}
	path := cmp.Or(f.from.Path, c.table.WrittenKeys["batch"])
	return []configfile.Edit{{Path: path, Value: int64(n) * int64(v.Batch), Create: true}}
}

// setStageLayers adds the first layer of each pipeline stage to the strategy, as torchtitan computes it
// (generate_llm_fqn_per_model_part). The embeddings and the output layer count as layers. The first stages get one more
// layer if the division has a remainder.
func (c *Config) setStageLayers(model string) error {
	n := c.facts[meshPipeline]
	at := slices.IndexFunc(c.Settings, func(s Setting) bool { return s.Flag == "strategy" })
	if n.value == "" || at < 0 {
		return nil
	}
	layers, _, err := layersOf(model)
	if err != nil {
		return n.fault("the layers of its stages are counted in the model's %s: %v", configName, err)
	}
	ranks, ofRanks := c.integerFact(meshPipeline, 0, 0)
	input, ofInput := c.integerFact(inputLayers, 1, 0)
	output, ofOutput := c.integerFact(outputLayers, 1, 0)
	least, ofLeast := c.integerFact(layersOfStage, 0, 0)
	if err := cmp.Or(ofRanks, ofInput, ofOutput, ofLeast); err != nil {
		return err
	}
	all, each := layers+input+output, 1
	interleaved := strings.Contains(c.Settings[at].Value, "schedule="+models.Interleaved)
	if interleaved {
		each = 2
	}
	if least > 0 {
		stages := (all + least - 1) / least
		if each = stages / ranks; stages%ranks != 0 || (each > 1) != interleaved {
			return c.facts[layersOfStage].fault("is %d, which makes %d stages of %d layers; torchtitan takes one for "+
				"each of %d ranks, and of Interleaved1F1B as many for each, from two on", least, stages, all, ranks)
		}
	}
	stages := ranks * each
	per, more := all/stages, all%stages
	if first := per + min(1, more) - input; first < 1 || per <= output {
		return n.fault("is %s, which leaves a stage of a model of %d layers without one; take fewer stages", n.value,
			layers)
	}
	var cuts []string
	for s, from := 1, -input; s < stages; s++ {
		from += per
		if s <= more {
			from++
		}
		cuts = append(cuts, strconv.Itoa(from))
	}
	c.Settings[at].Value += phrase.If(each > 2, ",stages=%d", each) + ",split=" + strings.Join(cuts, "+")
	return nil
}
