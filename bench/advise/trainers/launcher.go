package trainers

import (
	"cmp"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// starterOptions are the options that set the number of GPUs in torchrun, deepspeed and trainers' own commands.
var starterOptions = []string{"nproc_per_node", "num_gpus", "num_processes"}

// accelerateGroups maps prefixes of accelerate's options to the groups of its configuration file that contain them.
var accelerateGroups = map[string]string{
	"fsdp_": "fsdp_config", "dynamo_": "dynamo_config", "parallelism_config_": "parallelism_config",
	"zero_": "deepspeed_config", "zero3_": "deepspeed_config", "offload_optimizer_": "deepspeed_config",
	"offload_param_": "deepspeed_config",
	"deepspeed_":     "deepspeed_config", "gradient_": "deepspeed_config",
}

// distributedTypes maps the options of "accelerate launch" that select a strategy (such as --use_fsdp) to the values of
// distributed_type in its configuration file.
var distributedTypes = map[string]string{
	"use_fsdp": "FSDP", "use_deepspeed": "DEEPSPEED",
	"use_megatron_lm": "MEGATRON_LM", "multi_gpu": "MULTI_GPU",
}

// readLauncherOptions reads the options of torchrun, accelerate or another program that starts the training program.
func (d *document) readLauncherOptions(starter []string, options *configValue) {
	if starter[0] == "accelerate" {
		d.readAccelerateOptions(options)
		return
	}
	nodes, ranks := 1, (*groupEntry)(nil)
	for _, e := range options.entries {
		switch {
		case slices.Contains(starterOptions, e.key):
			ranks = &e
		case e.key == "nnodes" || e.key == "num_nodes":
			n, err := strconv.Atoi(e.value.text)
			if nodes = n; err != nil {
				nodes = 1
				d.notes.Add("%s: --%s %s is taken for 1; --gpus says how many GPUs there are in all", d.file, e.key,
					e.value.text)
			}
		}
	}
	if ranks == nil {
		return
	}
	count := ranks.value.text
	if n, err := strconv.Atoi(count); err == nil && nodes > 1 && nodes < 1<<20 && n < 1<<20 {
		count = strconv.Itoa(n * nodes)
	}
	d.facts.set("gpus", count, Key{d.file, ranks.line, "--" + ranks.key})
}

// readAccelerateOptions converts the options of "accelerate launch", which override a file, to a configuration.
func (d *document) readAccelerateOptions(options *configValue) {
	s := &document{file: d.file, command: true, trainer: "accelerate", root: &configValue{kind: groupKind}}
	for _, e := range options.entries {
		kind, sharing := distributedTypes[e.key]
		switch {
		case e.key == "config_file":
			s.config = e.value.text
			continue
		case sharing && e.value.text != "true", sharing && kind == "MULTI_GPU" && s.root.get("distributed_type") != nil:
			continue
		case sharing:
			e.key, e.value = "distributed_type", &configValue{kind: textKind, text: kind, line: e.line}
		}
		path := e.key
		for _, begins := range slices.Sorted(maps.Keys(accelerateGroups)) {
			if strings.HasPrefix(e.key, begins) {
				path = accelerateGroups[begins] + "." + e.key
			}
		}
		e.key = path
		s.root.setAtPath(e)
	}
	if s.config == "" {
		s.config = accelerateConfigFile()
		d.notes.If(s.config != "", "%s: accelerate launch without --config_file goes by %s", d.file, s.config)
	}
	if s.config != "" || len(s.root.entries) > 0 {
		d.gpuDocument = s
	}
}

// accelerateConfigFile returns the path of the file that "accelerate config" wrote on this machine; accelerate uses it
// unless another is named. The path is empty if there is none.
func accelerateConfigFile() string {
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	cache := cmp.Or(os.Getenv("HF_HOME"),
		filepath.Join(cmp.Or(os.Getenv("XDG_CACHE_HOME"), filepath.Join(home, ".cache")), "huggingface"))
	for _, ending := range []string{"yaml", "yml", "json"} {
		path := filepath.Join(cache, "accelerate", "default_config."+ending)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return ""
}
