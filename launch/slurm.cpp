#include "launch/slurm.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"

namespace tandem::launch {
namespace {

// A line of the head: a value with blanks in double quotes, as sbatch reads it.
std::string directive(std::string_view option, std::string_view value) {
  const bool plain = value.find_first_of(" \t'\"\\") == std::string_view::npos;
  return fmt::format("#SBATCH --{}={}\n", option, plain ? std::string(value) : fmt::format("\"{}\"", value));
}

// Notice before the end of the time: less where there is little of it, since Slurm may give it a minute early.
int64_t notice_of(const std::string& time, int64_t seconds) {
  return time.empty() ? kNoticeSeconds : std::min<int64_t>(kNoticeSeconds, std::max<int64_t>(1, seconds / 4));
}

Status check_line(std::string_view option, std::string_view value) {
  if (value.find_first_of("\n\r\"\\") == std::string_view::npos) return {};
  return Status::invalid(fmt::format("{}: a line of a batch file cannot hold \"{}\"", option, value));
}

std::string head(const Job& job, const SlurmOptions& options, int64_t notice) {
  std::string text = fmt::format(
      "#!/bin/bash\n"
      "# Made by `tandem launch --on slurm`. `sbatch` of this file submits it; again, it goes on where it stopped.\n");
  const bool array = job.variants.size() > 1;
  text += directive("job-name", job.name);
  if (options.nodes == 1)
    text += "#SBATCH --nodes=1\n#SBATCH --ntasks=1\n";
  else
    text += fmt::format("#SBATCH --nodes={}\n#SBATCH --ntasks-per-node=1\n#SBATCH --no-kill\n", options.nodes);
  text += directive("cpus-per-task", std::to_string(job.resources.cores));
  text += directive("mem", fmt::format("{}M", job.resources.memory_bytes >> 20));
  if (!options.time.empty()) text += directive("time", options.time);
  if (!options.partition.empty()) text += directive("partition", options.partition);
  if (!options.account.empty()) text += directive("account", options.account);
  if (array) {
    text += directive("array", fmt::format("0-{}{}", job.variants.size() - 1,
                                           options.at_once > 0 ? fmt::format("%{}", options.at_once) : ""));
  }
  text += directive("chdir", job.working_dir.string());
  text += directive("output", array ? "%x-%A_%a.out" : "%x-%j.out");
  text += "#SBATCH --open-mode=append\n#SBATCH --requeue\n#SBATCH --dependency=singleton\n";
  text += fmt::format("#SBATCH --signal=B:USR1@{}\n", notice);
  for (const std::string& line : options.extra) text += fmt::format("#SBATCH {}\n", line);
  return text;
}

// Sets `run_dir` and `values`, those of the array's task where there are several.
std::string choice(const Job& job) {
  if (job.variants.size() == 1) {
    const Variant& only = job.variants.front();
    return fmt::format("run_dir={}\nvalues=({})\n", quoted_for_shell(job.run_dir_of(only).string()),
                       joined_for_shell(only.overrides));
  }
  std::string text = "case $SLURM_ARRAY_TASK_ID in\n";
  for (size_t i = 0; i < job.variants.size(); ++i) {
    text +=
        fmt::format("  {}) run_dir={} values=({}) ;;\n", i, quoted_for_shell(job.run_dir_of(job.variants[i]).string()),
                    joined_for_shell(job.variants[i].overrides));
  }
  return text + "esac\n";
}

// What the script does; fmt's braces are those of the arguments alone, so they are put in between.
constexpr std::string_view kBody = R"sh(
mkdir -p "$run_dir" || exit
restarts=${SLURM_RESTART_COUNT:-0}
# What happened to this run under Slurm; a failure of the run itself is told in failure.json beside it.
note() {
  printf '%s job %s attempt %s on %s: %s\n' \
    "$(date -u +%Y-%m-%dT%H:%M:%SZ)" "$SLURM_JOB_ID" "$restarts" "$(hostname -s)" "$1" | tee -a "$run_dir/job.log"
}

# The run is told once for each notice, and saves a checkpoint within its patience; a second notice does no harm.
child='' signals=0 told=0
tell() {
  told=1
  kill -TERM "$child" 2>/dev/null
}
stop() {
  signals=$((signals + 1))
  note "$1"
  [[ -z $child ]] || tell
}
trap 'stop "the time is nearly up"' USR1
trap 'stop "asked to end"' TERM
trap 'stop "the steps of this job are told to end: it is preempted or cancelled"' USR2

)sh";

constexpr std::string_view kRun = R"sh(note "begins"
"$tandem" run "$config" --run-dir "$run_dir" --resume-or-start "${shared[@]}" "${values[@]}" &
)sh";

constexpr std::string_view kRunOnHosts = R"sh(note "begins"
# A host on every node, with a key of this attempt. What it keeps goes with it.
keys=$(mktemp -d "${TMPDIR:-/tmp}/tandem-job-XXXXXX") && "$tandem" host --make-key "$keys/key" || exit
give_back() {
  for ((i = 0; i < 100; ++i)); do  # hosts end with their run
    kill -0 "$lender" 2>/dev/null || break
    sleep 0.2
  done
  kill "$lender" 2>/dev/null
  rm -rf "$keys"
}
trap give_back EXIT
lender=''
port=$((20000 + SLURM_JOB_ID * nodes % 20000))
srun --overlap --nodes="$nodes" --ntasks-per-node=1 --cpus-per-task="$SLURM_CPUS_PER_TASK" --mem=0 --mpi=none \
  --no-kill --kill-on-bad-exit=0 --label \
  bash -c 'umask 077
    own=${TMPDIR:-/tmp}/tandem-host-$SLURM_JOB_ID-$SLURM_NODEID
    rm -rf "$own"  # of an attempt that was killed
    mkdir "$own" && cat > "$own/key" || exit
    trap "" TERM  # Slurm tells every process of a step
    "$1" host --listen "tcp://*:$(($2 + SLURM_NODEID))" --key "$own/key" --store "$own/store" --cores "$3" --once < /dev/null
    rm -rf "$own"' host "$tandem" "$port" "$SLURM_CPUS_PER_TASK" < "$keys/key" >> "$run_dir/hosts.log" 2>&1 &
lender=$!
addresses='' node=0
for name in $(scontrol show hostnames "$SLURM_JOB_NODELIST"); do
  # Names of nodes need not resolve.
  address=$(scontrol show node -o "$name" | sed -n 's/.* NodeAddr=\([^ ]*\).*/\1/p')
  place=${address:-$name}
  for ((i = 0; i < 300; ++i)); do
    (exec 3<> "/dev/tcp/$place/$((port + node))") 2>/dev/null && break
    sleep 0.2
  done
  addresses+=${addresses:+,}tcp://$place:$((port + node))
  node=$((node + 1))
done
"$tandem" run "$config" --run-dir "$run_dir" --resume-or-start "${shared[@]}" "${values[@]}" \
  "run.hosts=[$addresses]" "run.key=$keys/key" &
)sh";

constexpr std::string_view kAfter = R"sh(child=$!
((signals == 0 || told == 1)) || tell  # a notice that came before there was a child
# A step without work, on this host: Slurm tells steps of a preemption, not this script.
)sh";

// A step without work, and where it is: on the first node, whose script it tells.
constexpr std::string_view kListener = "srun --overlap --ntasks=1",
                           kListenerOfNodes = "srun --overlap --nodes=1 --nodelist=\"$SLURMD_NODENAME\" --ntasks=1";

constexpr std::string_view kRest = R"sh( --cpus-per-task=1 --mem=0 --mpi=none \
  bash -c 'trap "kill -USR2 $1; exit" TERM; sleep infinity & wait' listener $$ >/dev/null 2>&1 &
listener=$!

# A signal ends a wait, not the child; a child that has been waited for is told by 127.
code=127
while :; do
  before=$signals
  wait "$child"
  status=$?
  ((status == 127)) || code=$status
  ((signals == before)) && break
done
trap '' USR1 USR2
kill "$listener" 2>/dev/null

crashes=$(grep -c " job $SLURM_JOB_ID .*: crashed" "$run_dir/job.log")
again=''
case $code in
  75 | 138 | 143)
    code=75
    if ((restarts < most_restarts)); then again="interrupted"; else note "interrupted, and started again $restarts times already"; fi
    ;;
  129 | 1[3-9]? )
    if ((crashes < most_crashes)); then again="crashed by signal $((code - 128))"; else note "crashed by signal $((code - 128)), after $crashes crashes before"; fi
    ;;
  *) note "ended with exit code $code" ;;
esac
[[ -n $again ]] || exit "$code"

# Only a job that still runs is put back into the queue: one that was cancelled stays so, and Slurm has put back by itself
# one whose time of grace is over.
state=$(scontrol show job -o "$SLURM_JOB_ID" 2>/dev/null | sed -n 's/.* JobState=\([A-Z_]*\).*/\1/p')
if [[ $state != RUNNING ]]; then
  note "$again; the job is $state and is left to Slurm"
  exit "$code"
fi
note "$again; back into the queue"
# Slurm ends this script then. An exit before that would count as the end of the job.
trap 'exit 75' TERM
scontrol requeue "$SLURM_JOB_ID" || exit "$code"
sleep 600 &
wait
exit "$code"
)sh";

}  // namespace

Result<std::string> render_slurm(const Job& job, const SlurmOptions& options) {
  int64_t seconds = 0;
  if (!options.time.empty()) seconds = TRY(seconds_of_time(options.time));
  TRY(check_line("--partition", options.partition));
  TRY(check_line("--account", options.account));
  TRY(check_line("the working directory", job.working_dir.string()));
  for (const std::string& line : options.extra) {
    if (line.find_first_of("\n\r") != std::string::npos || !line.starts_with("-"))
      return fail(Status::invalid(fmt::format("--extra \"{}\" is not an option of sbatch, such as --qos=high", line)));
  }
  std::string text = head(job, options, notice_of(options.time, seconds));
  text += fmt::format("\ntandem={}\nconfig={}\nshared=({})\nmost_restarts={}\nmost_crashes={}\n",
                      quoted_for_shell(job.program), quoted_for_shell(job.config), joined_for_shell(job.overrides),
                      job.most_restarts, kMostCrashes);
  text += choice(job);
  if (options.nodes > 1) text += fmt::format("nodes={}\n", options.nodes);
  text += kBody;
  text += options.nodes > 1 ? kRunOnHosts : kRun;
  text += kAfter;
  text += options.nodes > 1 ? kListenerOfNodes : kListener;
  text += kRest;
  return text;
}

Result<std::string> job_of_sbatch(std::string_view output) {
  const std::string_view line = trim(split(trim(output), '\n').back());
  const std::string_view number = line.substr(0, line.find(';'));  // "123;cluster"
  if (number.empty() || number.find_first_not_of("0123456789") != std::string_view::npos)
    return fail(Status::corrupt(fmt::format("sbatch printed no number of a job: {}", trim(output))));
  return std::string(number);
}

}  // namespace tandem::launch
