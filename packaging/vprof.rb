# The Homebrew formula, for a tap's folder Formula. It builds from source, so that macOS needs no signature.
class Vprof < Formula
  desc "Plan GPU memory of PyTorch training"
  homepage "https://github.com/vprof/vprof"
  # A release sets `tag` and `revision`; until the first there is only --HEAD.
  license "Apache-2.0"
  head "https://github.com/vprof/vprof.git", branch: "main"

  depends_on "go" => :build

  def install
    ENV["CGO_ENABLED"] = "0"
    system "go", "build", *std_go_args(ldflags: "-s"), "./cmd/vprof"
    system "make", "docs"
    man1.install Dir[".cache/docs/man/*.1"]
    generate_completions_from_executable(bin/"vprof", "completion", shells: [:bash, :zsh, :fish])
  end

  test do
    assert_match "gpt2", shell_output("#{bin}/vprof plan --model gpt2 --gpu rtx-4090")
  end
end
