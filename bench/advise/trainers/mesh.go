package trainers

import "strconv"

// The facts of the sizes of a device mesh: the number of ranks that shard the weights, that hold a copy of them, that
// share each layer (tensor parallelism), that share each sequence (context parallelism), and that divide the experts.
const (
	meshShard   = "shard-ranks"
	meshCopies  = "replicate"
	meshTensor  = "tensor"
	meshContext = "context"
	meshExperts = "experts"
)

// expertsInside is the fact that the ranks that divide the experts are among the ranks that shard the weights.
const expertsInside = "experts-inside"

// setMesh computes the number of GPUs from the mesh's sizes, if the configuration sets a size for tensor, context
// or expert parallelism.
func (c *Config) setMesh() error {
	sizes := []string{meshShard, meshCopies, meshTensor, meshContext, meshPipeline, meshExperts}
	from, given := c.facts[meshShard]
	if c.facts[expertsInside].value == "true" {
		sizes = sizes[:len(sizes)-1]
	} else if !given {
		from, given = c.facts[meshExperts]
	}
	if !given || c.facts["gpus"].value != "" {
		return nil
	}
	gpus := int64(1)
	for _, name := range sizes {
		n, err := strconv.ParseInt(c.facts[name].value, 10, 64)
		if err != nil {
			continue
		}
		if gpus *= n; n > 1<<20 || gpus > 1<<20 {
			return from.fault("makes more than a million GPUs of the sizes of the mesh")
		}
	}
	if gpus > 1 {
		c.facts.set("gpus", strconv.FormatInt(gpus, 10), from.from)
	}
	return nil
}

// globalBatch is the name of a fact: the number of samples of an optimizer step on all ranks.
const globalBatch = "global-batch"

// setAccumulation computes a rank's number of micro-batches from the global batch, if the file sets the number of GPUs.
func (c *Config) setAccumulation() error {
	all, given := c.facts[globalBatch]
	if !given {
		return nil
	}
	size := func(name string) int64 {
		n, _ := c.integerFact(name, 1, 1) // which was checked when it was read
		return int64(max(1, n))
	}
	if c.facts["gpus"].value == "" {
		c.Notes.Add("%v: planned is one batch before a step, as nothing says how many GPUs train; say with "+
			"--accumulate how many a rank takes", all.from)
		return nil
	}
	// Ranks that share layers or sequences train on the same samples.
	c.groups = max(1, size("gpus")/(size(meshTensor)*size(meshContext)*size(meshPipeline)))
	once := c.groups * size("batch")
	if size(globalBatch)%once != 0 {
		return all.fault("is %s, and all ranks take %d samples at a time; make it a multiple of that", all.value, once)
	}
	c.facts.set("accumulate", strconv.FormatInt(size(globalBatch)/once, 10), all.from)
	return nil
}

// divideGlobalBatch adds the sizes of context and expert parallelism, and how ranks share a sequence, to the strategy.
func (c *Config) divideGlobalBatch() error {
	for _, of := range [][2]string{{meshContext, "cp"}, {meshExperts, "ep"}} {
		if _, ok := c.facts[of[0]]; ok && c.facts["strategy"].value != "" {
			c.facts.appendOptions("strategy", c.facts.options(of[1], of[0], of[1]+"_by", of[1]+"_by")...)
		}
	}
	return nil
}

// meshTensorBy is the fact, and the strategy's option, of how ranks share layers. "cp_by" and "ep_by" are those for
// sequences and experts.
const meshTensorBy = "tp_by"
