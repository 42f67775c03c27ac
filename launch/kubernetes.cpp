#include "launch/kubernetes.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "base/text.h"

namespace tandem::launch {
namespace {

constexpr size_t kMostOfName = 48;  // pods and jobs of a CronJob get suffixes, and may have 63

// YAML reads JSON.
std::string yaml_text(std::string_view text) { return dump_json(Json(text)); }

// One line of YAML: ["a", "b"].
std::string yaml_list(const std::vector<std::string>& items) {
  std::vector<std::string> all;
  for (const std::string& item : items) all.push_back(yaml_text(item));
  return fmt::format("[{}]", join(all, ", "));
}

// Each line `by` blanks further to the right.
std::string indented(std::string_view text, int by) {
  std::string result;
  for (const auto line : split_lines(text)) {
    if (line.empty())
      result += '\n';
    else
      result += fmt::format("{:{}}{}\n", "", by, line);
  }
  return result;
}

bool is_name(std::string_view text) {
  return !text.empty() && text.size() <= 63 && text.front() != '-' && text.back() != '-' &&
         text.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789-") == std::string_view::npos;
}

Status check_options(const KubernetesOptions& options) {
  if (options.image.empty()) {
    return Status::invalid("--image says which image has tandem")
        .hint("packaging/Dockerfile builds one; push it where the cluster's nodes pull from");
  }
  for (const auto& [option, value] : {std::pair<const char*, std::string_view>{"--namespace", options.name_space},
                                      {"--queue", options.queue},
                                      {"--claim", options.claim}}) {
    if (!value.empty() && !is_name(value)) {
      return Status::invalid(fmt::format("{} \"{}\" is no name of Kubernetes", option, value))
          .hint("small letters, digits and '-', at most 63");
    }
  }
  return {};
}

Status check_below_volume(std::string_view what, const fs::path& path) {
  const std::string text = path.lexically_normal().string();
  if (text.starts_with(fmt::format("{}/", kVolume))) return {};
  return Status::invalid(fmt::format("{} {} is not on the volume, which is at {}", what, text, kVolume));
}

std::string metadata(const std::string& name, const std::string& of, const KubernetesOptions& options, bool queued) {
  std::string text = fmt::format("metadata:\n  name: {}\n", name);
  if (!options.name_space.empty()) text += fmt::format("  namespace: {}\n", options.name_space);
  text += fmt::format("  labels:\n    app.kubernetes.io/name: tandem\n    app.kubernetes.io/instance: {}\n", of);
  if (queued && !options.queue.empty()) text += fmt::format("    kueue.x-k8s.io/queue-name: {}\n", options.queue);
  return text;
}

std::string config_map(const std::string& name, std::string_view file, std::string_view content,
                       const KubernetesOptions& options) {
  return fmt::format("apiVersion: v1\nkind: ConfigMap\n{}data:\n  {}: |\n{}", metadata(name, name, options, false),
                     file, indented(content, 4));
}

std::string volume_claim(const std::string& name, bool shared, const KubernetesOptions& options) {
  return fmt::format(
      "apiVersion: v1\nkind: PersistentVolumeClaim\n{}spec:\n  accessModes: [{}]\n  resources:\n    requests:\n"
      "      storage: {}Gi\n",
      metadata(name, name, options, false), shared ? "ReadWriteMany" : "ReadWriteOnce", options.storage_gb);
}

// What follows the end of a pod, the rule of launch/verdict.h: exit codes that ask for another start are none of the
// crashes that backoffLimit counts. `failures`: those after which another start is no help.
std::string failure_policy(std::string_view failures, int crashes) {
  return fmt::format(
      "backoffLimit: {}\n"
      "podFailurePolicy:\n"
      "  rules:\n"
      "    # Preempted or drained: whatever it ended with, it is started again elsewhere.\n"
      "    - action: Ignore\n"
      "      onPodConditions:\n"
      "        - type: DisruptionTarget\n"
      "          status: \"True\"\n"
      "    # Interrupted with a checkpoint, or before there was anything to save.\n"
      "    - action: Ignore\n"
      "      onExitCodes:\n"
      "        containerName: tandem\n"
      "        operator: In\n"
      "        values: [75, 138, 143]\n"
      "    - action: FailJob\n"
      "      onExitCodes:\n"
      "        containerName: tandem\n"
      "        operator: In\n"
      "        values: [{}]\n",
      crashes, failures);
}

struct Pod {
  std::vector<std::string> command;  // empty: the image's entrypoint
  std::vector<std::string> arguments;
  std::string config_map, claim;
  fs::path run_dir;  // whose status.json shows that it lives; empty: nothing does
  Resources resources;
};

std::string probes(const fs::path& run_dir) {
  // The supervisor replaces status.json twice a second; what hangs below it, it sees by itself.
  const std::string status = quoted_for_shell((run_dir / "status.json").string());
  const std::string fresh = fmt::format("test -n \"$(find {} -mmin -5)\"", status);
  return fmt::format(
      "startupProbe:\n"
      "  exec:\n"
      "    command: {0}\n"
      "  periodSeconds: 10\n"
      "  failureThreshold: 60\n"
      "livenessProbe:\n"
      "  exec:\n"
      "    command: {0}\n"
      "  periodSeconds: 60\n"
      "  timeoutSeconds: 10\n"
      "  failureThreshold: 3\n",
      yaml_list({"sh", "-c", fresh}));
}

std::string pod_template(const Pod& pod, const std::string& of, const KubernetesOptions& options) {
  std::string container = fmt::format("- name: tandem\n  image: {}\n", yaml_text(options.image));
  if (!pod.command.empty()) container += fmt::format("  command: {}\n", yaml_list(pod.command));
  container += fmt::format("  args:\n{}", [&] {
    std::string arguments;
    for (const std::string& argument : pod.arguments) arguments += fmt::format("    - {}\n", yaml_text(argument));
    return arguments;
  }());
  container += fmt::format("  workingDir: {}\n", kVolume);
  container += fmt::format(
      "  resources:\n"
      "    requests: {{cpu: \"{0}\", memory: {1}Mi}}\n"
      "    limits: {{cpu: \"{0}\", memory: {1}Mi}}\n",
      pod.resources.cores, pod.resources.memory_bytes >> 20);
  container +=
      "  # No privilege, but what unprivileged namespaces need, of which sandboxes are made.\n"
      "  securityContext:\n"
      "    allowPrivilegeEscalation: false\n"
      "    capabilities: {drop: [ALL]}\n"
      "    procMount: Unmasked\n"
      "    seccompProfile: {type: Unconfined}\n"
      "    appArmorProfile: {type: Unconfined}\n";
  if (!pod.run_dir.empty()) container += indented(probes(pod.run_dir), 2);
  container += fmt::format(
      "  # The reason of a failure, by `kubectl describe`; all of it is in failure.json of the run directory.\n"
      "  terminationMessagePolicy: FallbackToLogsOnError\n"
      "  volumeMounts:\n"
      "    - {{name: data, mountPath: {}}}\n"
      "    - {{name: config, mountPath: {}, readOnly: true}}\n",
      kVolume, kConfigFolder);
  return fmt::format(
      "template:\n"
      "  metadata:\n"
      "    labels:\n"
      "      app.kubernetes.io/name: tandem\n"
      "      app.kubernetes.io/instance: {}\n"
      "  spec:\n"
      "    restartPolicy: Never\n"
      "    # For a checkpoint; what has not ended then is killed.\n"
      "    terminationGracePeriodSeconds: {}\n"
      "    # Users of the pod are none of the node's; procMount wants it so.\n"
      "    hostUsers: false\n"
      "    securityContext:\n"
      "      runAsNonRoot: true\n"
      "      runAsUser: 1000\n"
      "      runAsGroup: 1000\n"
      "      fsGroup: 1000\n"
      "    containers:\n"
      "{}"
      "    volumes:\n"
      "      - name: data\n"
      "        persistentVolumeClaim: {{claimName: {}}}\n"
      "      - name: config\n"
      "        configMap: {{name: {}}}\n",
      of, kNoticeSeconds, indented(container, 6), pod.claim, pod.config_map);
}

constexpr std::string_view kHead =
    "# Made by `tandem launch --on kubernetes`. `kubectl create -f` of this file submits it.\n";

}  // namespace

std::string name_for_kubernetes(std::string_view text) {
  std::string name;
  for (const char c : text) {
    const char small = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
    const bool is_plain = (small >= 'a' && small <= 'z') || (small >= '0' && small <= '9');
    if (is_plain)
      name += small;
    else if (!name.empty() && name.back() != '-')
      name += '-';
  }
  name = name.substr(0, kMostOfName);
  while (!name.empty() && name.back() == '-') name.pop_back();
  return name.empty() ? "tandem" : name;
}

Result<std::string> render_kubernetes(const Job& job, std::string_view config, const KubernetesOptions& options) {
  TRY(check_options(options));
  TRY(check_below_volume("the run directory", job.run_dir));
  const std::string name = name_for_kubernetes(job.name);
  const std::string claim = options.claim.empty() ? name : options.claim;
  std::string text(kHead);
  text += config_map(name, "run.yaml", config, options);
  if (options.claim.empty()) text += "---\n" + volume_claim(claim, job.variants.size() > 1, options);
  for (size_t i = 0; i < job.variants.size(); ++i) {
    const Variant& variant = job.variants[i];
    const fs::path run_dir = job.run_dir_of(variant);
    Pod pod{.arguments = {"run", fmt::format("{}/run.yaml", kConfigFolder), "--run-dir", run_dir.string(),
                          "--resume-or-start"},
            .config_map = name,
            .claim = claim,
            .run_dir = run_dir,
            .resources = job.resources};
    pod.arguments.insert(pod.arguments.end(), job.overrides.begin(), job.overrides.end());
    pod.arguments.insert(pod.arguments.end(), variant.overrides.begin(), variant.overrides.end());
    text += fmt::format("---\napiVersion: batch/v1\nkind: Job\n{}spec:\n",
                        metadata(job.variants.size() > 1 ? fmt::format("{}-{}", name, i) : name, name, options, true));
    if (!options.queue.empty()) text += "  suspend: true  # until Kueue admits it\n";
    text += indented(failure_policy("1, 2, 3, 5, 6, 126, 127", kMostCrashes), 2);
    text += indented(pod_template(pod, name, options), 2);
  }
  return text;
}

Result<std::string> render_kubernetes_nightly(const Nightly& nightly, std::string_view suite,
                                              const KubernetesOptions& options) {
  TRY(check_options(options));
  TRY(check_below_volume("the folder of nights", nightly.nights));
  const auto fields = split(nightly.schedule, ' ');
  if (fields.size() != 5 || std::find(fields.begin(), fields.end(), "") != fields.end()) {
    return fail(Status::invalid(fmt::format("--schedule \"{}\" is not five fields of cron", nightly.schedule))
                    .hint("'30 2 * * *' is every night at 02:30 UTC"));
  }
  const std::string name = name_for_kubernetes(nightly.name);
  const std::string claim = options.claim.empty() ? name : options.claim;
  const Pod pod{.command = {"tini", "--", "/usr/local/share/tandem/nightly.sh"},
                .arguments = {fmt::format("{}/suite.yaml", kConfigFolder), nightly.nights.string()},
                .config_map = name,
                .claim = claim,
                .resources = nightly.resources};
  std::string text(kHead);
  text += config_map(name, "suite.yaml", suite, options);
  if (options.claim.empty()) text += "---\n" + volume_claim(claim, false, options);
  text += fmt::format("---\napiVersion: batch/v1\nkind: CronJob\n{}spec:\n", metadata(name, name, options, false));
  text += fmt::format(
      "  schedule: {}\n"
      "  timeZone: Etc/UTC\n"
      "  concurrencyPolicy: Forbid\n"
      "  startingDeadlineSeconds: 3600\n"
      "  successfulJobsHistoryLimit: 7\n"
      "  failedJobsHistoryLimit: 7\n"
      "  jobTemplate:\n",
      yaml_text(nightly.schedule));
  if (!options.queue.empty())
    text += fmt::format("    metadata:\n      labels:\n        kueue.x-k8s.io/queue-name: {}\n", options.queue);
  text += "    spec:\n";
  // 4 is a regression, a result; after 5 the same command tries again what has no verdict.
  text += indented(failure_policy("1, 2, 3, 4, 6, 126, 127", 2), 6);
  text += indented(pod_template(pod, name, options), 6);
  return text;
}

}  // namespace tandem::launch
