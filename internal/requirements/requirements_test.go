package requirements_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/vprof/vprof/internal/requirements"
)

func TestVersionsAreReadAsPeopleWriteThem(t *testing.T) {
	for _, c := range []struct{ file, text, want string }{
		{"requirements.txt", "numpy==2.0\ntorch==2.11.0+cu130 # CUDA 13\n", "2.11.0+cu130"},
		{"requirements.txt", "torchvision==0.26\ntorch >= 2.8,<3\n", "2.8"},
		{"requirements.txt", "torch[opt-einsum]~=2.9.1\n", "2.9.1"},
		{"requirements.txt", "torch\n# torch==2.1\n", ""},
		{"requirements.txt", "torch @ git+https://github.com/pytorch/pytorch@v2.13.0\n", "2.13.0"},
		{"requirements.txt", "-e git+ssh://git@github.com/pytorch/pytorch.git@v2.12.1#egg=torch\n", "2.12.1"},
		{"requirements.txt", "torch @ git+https://github.com/pytorch/pytorch@5ab3c0f\n", ""},
		{"requirements.txt", "# pip install git+https://github.com/pytorch/pytorch@v2.13.0\n", ""},
		{"pyproject.toml", "dependencies = [\"torch @ git+https://github.com/pytorch/pytorch@v2.14.0\"]\n", "2.14.0"},
		{"pyproject.toml", "dependencies = [\"torchmetrics>=1\", \"torch>=2.12\"]\n", "2.12"},
		{"pyproject.toml", "[tool.poetry.dependencies]\ntorch = \"^2.13\"\n", "2.13"},
		{"pyproject.toml", "dependencies = [\"torch\"]\n", ""},
		{"uv.lock", "[[package]]\nname = \"torch\"\nversion = \"2.15.0+cu132\"\n", "2.15.0+cu132"},
		{"uv.lock", "[[package]]\nname = \"torchvision\"\nversion = \"0.26.0\"\n", ""},
		{"environment.yml", "dependencies:\n  - conda-forge::pytorch=2.11.0=cuda130\n", "2.11.0"},
		{"environment.yaml", "  - pip:\n    - torch==2.12.1\n", "2.12.1"},
		{"pixi.lock", "- conda: https://a.b/linux-64/pytorch-2.13.0-cuda129_1.conda\n", "2.13.0"},
		{"pixi.lock", "- pypi: https://a.b/x.whl\n  name: torch\n  version: 2.14.0\n", "2.14.0"},
		{"pixi.lock", "- conda: https://a.b/linux-64/pytorch-lightning-2.5.0-h1_0.conda\n", ""},
	} {
		require.Equal(t, c.want, requirements.Version(c.file, []byte(c.text), "torch"), c.text)
	}
}

func TestTheLockFileComesFirst(t *testing.T) {
	dir := t.TempDir()
	_, err := requirements.Find(dir, "torch")
	require.ErrorIs(t, err, requirements.ErrNotFound)
	write := func(file, text string) {
		require.NoError(t, os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600))
	}
	write("requirements.txt", "torch>=2.8\n")
	pin, err := requirements.Find(dir, "torch")
	require.NoError(t, err)
	require.Equal(t, "2.8", pin)
	write("uv.lock", "[[package]]\nname = \"torch\"\nversion = \"2.11.0\"\n")
	pin, err = requirements.Find(dir, "torch")
	require.NoError(t, err)
	require.Equal(t, "2.11.0", pin)
}

func TestPinsAreOfExactReleases(t *testing.T) {
	for file, text := range map[string]string{
		"uv.lock":          "version = 1\n[[package]]\nname = \"My_Lib\"\nversion = \"1.2\"\nsource = {}\n",
		"requirements.txt": "# all\nmy.lib[extra]==1.2 ; python_version > '3.9'\nother>=3\n",
		"pylock.toml":      "[[packages]]\nname = \"my-lib\"\nversion = \"1.2\"\n",
		"environment.yml":  "dependencies:\n  - conda-forge::my-lib=1.2\n",
		"git.txt":          "my_lib @ git+https://github.com/some/my-lib.git@v1.2\n",
	} {
		require.Equal(t, map[string]string{"my-lib": "1.2"}, requirements.PinnedReleases(file, []byte(text)), file)
	}
}

func FuzzVersion(f *testing.F) {
	f.Add("requirements.txt", []byte("torch==2.11"))
	f.Add("pyproject.toml", []byte("\"torch>=2\""))
	f.Add("uv.lock", []byte("name = \"torch\"\nversion = \"2.1\""))
	f.Fuzz(func(t *testing.T, file string, text []byte) {
		if v := requirements.Version(file, text, "torch"); v != "" {
			require.Contains(t, string(text), v)
		}
	})
}
