package trainers

import (
	"cmp"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// titan returns a file of torchtitan, with a pipeline that keys say more of.
func titan(keys string) string {
	return "[model]\nflavor = \"8B\"\n[training]\nseq_len = 8\nlocal_batch_size = 16\n[parallelism]\n" + keys
}

// Stages are cut as generate_llm_fqn_per_model_part of torchtitan 0.2.2 cuts them, which gave these names of layers.
func TestPipelinesOfTorchtitanAreStrategies(t *testing.T) {
	const ranks = "pipeline_parallel_degree = "
	config := filepath.Join(t.TempDir(), "config.json")
	for _, row := range []struct{ keys, layers, batch, gpus, want string }{
		{ranks + "2", "32", "1", "", "pp:pp=2,micro=16,mp=bf16,wrap=ends,reshard=false,split=16"},
		{ranks + "4", "32", "1", "", "pp:pp=4,micro=16,mp=bf16,wrap=ends,reshard=false,split=8+17+25"},
		{
			ranks + "4\npipeline_parallel_first_stage_less_layers = 2\npipeline_parallel_last_stage_less_layers = 3",
			"30", "1", "", "pp:pp=4,micro=16,mp=bf16,wrap=ends,reshard=false,split=7+16+25",
		},
		{
			ranks + "4\npipeline_parallel_first_stage_less_layers = 0\npipeline_parallel_last_stage_less_layers = 0",
			"32", "1", "", "pp:pp=4,micro=16,mp=bf16,wrap=ends,reshard=false,split=8+16+24",
		},
		{
			ranks + "2\npipeline_parallel_schedule = \"GPipe\"\npipeline_parallel_microbatch_size = 4\n" +
				"fsdp_reshard_after_forward = \"always\"\ndata_parallel_shard_degree = 4\ntensor_parallel_degree = 8",
			"7", "4", "64", "pp:pp=2,micro=4,schedule=gpipe,tp=8,sequence=true,loss=true,mp=bf16,reshard=true,split=4",
		},
		{
			ranks + "2\ndata_parallel_shard_degree = 2\ncontext_parallel_degree = 2\nexpert_parallel_degree = 4\n" +
				"data_parallel_replicate_degree = 3\nfsdp_reshard_after_forward = \"default\"",
			"32", "1", "24", "pp:pp=2,micro=16,mp=bf16,wrap=ends,reshard=false,replicate=3,cp=2,cp_by=torch,ep=4," +
				"ep_by=torch,split=16",
		},
		{ranks + "4\ndata_parallel_shard_degree = 1", "32", "1", "4", "pp:pp=4,micro=16,split=8+17+25"},
		{
			ranks +
				"4\ndata_parallel_shard_degree = 1\npipeline_parallel_schedule = \"Interleaved1F1B\"", "32", "1", "4",
			"pp:pp=4,micro=16,schedule=interleaved,split=4+9+13+17+21+25+29",
		},
		{
			ranks + "2\ndata_parallel_shard_degree = 1\npipeline_parallel_schedule = \"interleaved1f1b\"\n" +
				"pipeline_parallel_layers_per_stage = 3", "15", "1", "2",
			"pp:pp=2,micro=16,schedule=interleaved,stages=3,split=2+5+8+11+14",
		},
		{
			ranks + "2\ndata_parallel_shard_degree = 1\ntensor_parallel_degree = 4", "32", "1", "8",
			"pp:pp=2,micro=16,tp=4,sequence=true,loss=true,split=16",
		},
	} {
		require.NoError(t, os.WriteFile(config, []byte(`{"num_hidden_layers": `+row.layers+`}`), 0o600))
		c, err := one(t, "c.toml", titan(row.keys))
		require.NoError(t, err, row.keys)
		require.NoError(t, c.ChooseLayers(config), row.keys)
		c.Settings, err = c.CaseSettings(cmp.Or(row.gpus, "64"), false)
		require.NoError(t, err)
		require.Equal(t, [5]string{row.want, row.batch, row.gpus, "function", "none"}, [5]string{
			setting(c, "strategy"), setting(c, "batch"), setting(c, "gpus"), setting(c, "loop"), setting(c, "amp"),
		}, row.keys)
	}
}

func TestPipelinesThatAreNotPlannedAreNamed(t *testing.T) {
	const ranks = "pipeline_parallel_degree = "
	config := filepath.Join(t.TempDir(), "config.json")
	require.NoError(t, os.WriteFile(config, []byte(`{"num_hidden_layers": 8}`), 0o600))
	for _, row := range []struct{ keys, want string }{
		{ranks + "0", "c.toml:7: parallelism.pipeline_parallel_degree: "},
		{
			ranks + "2\npipeline_parallel_schedule = \"ZBVZeroBubble\"",
			"c.toml:8: parallelism.pipeline_parallel_schedule: is ZBVZeroBubble: vprof records pipelines by 1F1B, GPipe",
		},
		{
			ranks + "2\ndata_parallel_shard_degree = 2\npipeline_parallel_schedule = \"Interleaved1F1B\"",
			"c.toml:9: parallelism.pipeline_parallel_schedule: is Interleaved1F1B: vprof records stages that GPUs share",
		},
		{ranks + "2\npipeline_parallel_microbatch_size = 3", "c.toml:5: training.local_batch_size: is 16, which is no"},
		{ranks + "32", "c.toml:5: training.local_batch_size: is 16, which makes 16 micro-batches of 1, and a pipeline"},
		{
			ranks + "2\nmodule_fqns_per_model_part = [[\"norm\"]]",
			"c.toml:8: parallelism.module_fqns_per_model_part: is ",
		},
		{ranks + "2\npipeline_parallel_schedule_csv = \"a.csv\"", "pipeline_parallel_schedule_csv: is a.csv: vprof"},
		{ranks + "2\n[optimizer]\nearly_step_in_backward = true", "early_step_in_backward: torchtitan does"},
		{
			ranks + "2\ndata_parallel_shard_degree = 1\ndata_parallel_replicate_degree = 2",
			"c.toml:9: parallelism.data_parallel_replicate_degree: torchtitan has no DistributedDataParallel",
		},
		{
			ranks + "2\npipeline_parallel_layers_per_stage = 3",
			"pipeline_parallel_layers_per_stage: is 3, which makes 4 stages of 10 layers; torchtitan takes one for each",
		},
		{
			ranks + "2\npipeline_parallel_first_stage_less_layers = 9",
			"parallelism.pipeline_parallel_degree: is 2, which leaves a stage of a model of 8 layers without one",
		},
		{
			ranks + "2\npipeline_parallel_last_stage_less_layers = -1",
			"last_stage_less_layers: \"-1\" is not a whole number from 0 on",
		},
	} {
		c, err := one(t, "c.toml", titan(row.keys))
		if err == nil {
			err = c.ChooseLayers(config)
		}
		require.ErrorContains(t, err, row.want, row.keys)
	}
	more := strings.Replace(titan(ranks+"2\ndata_parallel_shard_degree = 2"), "8\n", "8\nglobal_batch_size = 64\n", 1)
	_, err := one(t, "c.toml", more)
	require.ErrorContains(t, err, "c.toml:5: training.global_batch_size: has each pipeline run 2 times before a step")
	c, err := one(t, "c.toml", titan(ranks+"2"))
	require.NoError(t, err)
	require.ErrorContains(t, c.ChooseLayers("none"), "the layers of its stages are counted in the model's config.json")
}
